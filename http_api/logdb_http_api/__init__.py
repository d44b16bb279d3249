"""logdb over HTTP: the door that ``logdb serve`` opens, and the session behind ``logdb.open("http://…")``.

Knows HTTP and JSON.  Does not know logs, groups or transactions: what is asked goes to a session of the broker.
"""
