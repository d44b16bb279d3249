"""Converters: between values and the bytes of records."""
