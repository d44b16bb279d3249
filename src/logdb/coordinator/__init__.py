"""Groups, offsets and transactions as state machines: (state, event, now) → (records, replies, timers, actions).

Knows the rules of Kafka's group and transaction coordinators and the records of its internal topics.  Does no I/O,
starts no thread and looks at no clock: ``logdb.broker`` runs it (see ``effects``).
"""
