"""Commands on what coordinators keep: groups and transactions."""
