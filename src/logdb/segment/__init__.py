"""One segment of a log: its file of record batches and the two sparse indexes beside it."""
