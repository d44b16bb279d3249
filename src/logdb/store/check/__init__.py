"""A directory that is not open, or is not trusted: verify and repair."""
