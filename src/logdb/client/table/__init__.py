"""The latest value of each key of a compacted topic."""
