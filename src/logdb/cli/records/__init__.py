"""Commands that write, read and find records."""
