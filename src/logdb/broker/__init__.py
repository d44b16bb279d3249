"""Runs coordinators, timers and waits on a store: what embedded use and every door share.

The rules of groups and transactions are in ``logdb.coordinator``; the broker contains no protocol.
"""
