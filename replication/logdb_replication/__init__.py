"""A cluster of logdb brokers: the quorum of controllers that keeps the metadata."""
