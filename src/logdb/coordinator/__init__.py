"""Groups, offsets and transactions as state machines: (state, event, now) → (records, replies, timers, actions).

These are the rules of Kafka's group and transaction coordinators, and the records of its internal topics.  The package does no I/O,
starts no thread and reads no clock: ``logdb.broker`` runs it (see ``effects``).
"""
