"""logdb over Kafka's wire protocol: the door that Kafka's clients speak to.

Frames and messages are read and written without I/O; each request goes to a session of the broker, as those of other doors do.
"""
