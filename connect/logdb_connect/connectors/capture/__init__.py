"""Change capture: what is inserted, updated and deleted in tables becomes records, after a snapshot of the rows that there are."""
