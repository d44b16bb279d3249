"""logdb over HTTP: the door that ``logdb serve`` opens, and the session behind ``logdb.open("http://…")``.

A door contains no rule about logs, groups or transactions: requests go to a session of the broker.
"""
