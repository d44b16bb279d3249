"""Kafka Connect's REST API."""
