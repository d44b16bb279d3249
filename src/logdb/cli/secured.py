"""What ``users``, ``acls`` and ``tokens`` share: how they get at what a database keeps of them.

Knows that a directory's file is changed beside a server that runs, for which a change counts when the command ends, and that a
server is asked by its URL.  Does not know what is changed.
"""

import contextlib
import os
from collections.abc import Iterator

import logdb
from logdb.access.security import FileCredentialStore
from logdb.cli.output import say
from logdb.cli.session import Session
from logdb.client.security_admin import SecurityAdmin
from logdb.io import IO
from logdb.store.check.verify import database_names


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
    yield SecurityAdmin(FileCredentialStore(io, path))


@contextlib.contextmanager
def first(session: Session) -> Iterator[SecurityAdmin]:
    """The same for what may turn authentication on, and says so then; makes the database in a directory where there is none."""
    if session.bootstrap is None and not (os.path.isdir(session.place) and os.listdir(session.place)):
        logdb.open(session.place).close()
    with opened(session) as admin:
        was_on = admin.users().authentication
        yield admin
        if not was_on:
            say("authentication is on from now on: whoever is allowed nothing may do nothing (logdb acls add …)")
