"""Kafka's requests and responses as tables: one module for each family of APIs.

A table's versions are those that this door answers.  Names of fields are Kafka's, in snake case.
"""
