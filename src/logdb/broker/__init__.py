"""Runs coordinators, timers and waits on a store: what embedded use and every door share.

Knows which call goes to which shard, and the order of appending, applying and answering.  Does not know the rules of
groups and transactions (``logdb.coordinator``), nor how a client or a protocol spells a call.
"""
