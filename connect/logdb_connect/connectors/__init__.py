"""Connectors: each module has a source or a sink, and imports what it needs where it is used."""
