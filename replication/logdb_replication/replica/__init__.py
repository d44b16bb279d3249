"""The replicas of a node: leaders and followers of partitions."""
