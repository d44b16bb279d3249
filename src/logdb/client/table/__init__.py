"""``db.table``: the latest value of each key of a topic."""
