"""``logdb serve`` and its settings."""
