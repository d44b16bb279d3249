"""Transforms of single records, and the predicates that say when they apply."""
