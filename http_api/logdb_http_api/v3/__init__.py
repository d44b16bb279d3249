"""REST v3: clusters, topics, groups, ACLs and records as resources."""
