"""Topics and partitions of one directory."""
