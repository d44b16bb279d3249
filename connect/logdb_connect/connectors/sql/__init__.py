"""Databases over SQLAlchemy: a sink and a source with the properties of Confluent's JDBC connectors."""
