"""Commands on no database, and those that start other programs."""
