"""Copies of a directory: snapshot, backup and restore."""
