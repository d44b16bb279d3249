"""``users``, ``acls`` and ``tokens``: the access to users, tokens and ACLs of a database.

The file of a directory may be changed beside a running server, which applies the change at once; or the server is asked
by its URL.
"""

import contextlib
import os
from collections.abc import Iterator

import logdb
from logdb.access.security import DocumentCredentialStore
from logdb.cli.terminal.output import say
from logdb.cli.terminal.session import Session
from logdb.client.security_admin import SecurityAdmin
from logdb.io import IO
from logdb.store.check.verify import database_names
from logdb.store.security_file import SecurityFile


@contextlib.contextmanager
def opened(session: Session) -> Iterator[SecurityAdmin]:
    """Users, tokens and ACLs of the database.

    Raises:
        NotADatabase: The directory holds none.
    """
    if (urls := session.bootstrap) is not None:
        with session.servers.open(urls) as db:
            yield db.security
        return
    io, path = IO(), session.place
    database_names(io, path)
    yield SecurityAdmin(DocumentCredentialStore(SecurityFile(io, path), io.clock_ms))


@contextlib.contextmanager
def first(session: Session) -> Iterator[SecurityAdmin]:
    """The same for a change that may turn authentication on, which is then said; creates the database if it is missing."""
    if session.bootstrap is None and not (os.path.isdir(session.place) and os.listdir(session.place)):
        logdb.open(session.place).close()
    with opened(session) as admin:
        was_on = admin.users().authentication
        yield admin
        if not was_on:
            say("authentication is on from now on: principals need ACLs (logdb acls add …)")
