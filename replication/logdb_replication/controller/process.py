"""The controller's process: a voter of the quorum, and its listener for brokers.

    python -m logdb_replication.controller.process CONFIG DIRECTORY

It says on stdout, in one line of JSON, that it is ready, or why it is not.  It ends when its stdin ends, in good order, and at once when
the process ends that started it (``supervisor``).  It ends, too, when its voter has stopped for a reason that may pass, a full disk, so
that it is started again; after a sync that has failed it stays, and says so to all who ask.
"""

import contextlib
import ctypes
import json
import logging
import os
import select
import signal
import sys
from collections.abc import Iterator

from logdb.errors import LogdbError
from logdb.io import IO
from logdb_replication.config import ClusterConfig
from logdb_replication.controller.feed import Feed
from logdb_replication.controller.listener import Listener
from logdb_replication.controller.service import Service
from logdb_replication.controller.tls import node_tls
from logdb_replication.raft.quorum import Quorum, QuorumOptions
from logdb_replication.transport.sockets import bind_address

_PR_SET_PDEATHSIG = 1
_LOOK_S = 1.0


def quorum_options(config: ClusterConfig) -> QuorumOptions:
    timeout_ms = config.times.election_timeout_ms
    return QuorumOptions(election_timeout_ms=timeout_ms, heartbeat_ms=timeout_ms // 5)


@contextlib.contextmanager
def controller(config: ClusterConfig, directory: str) -> Iterator[Quorum]:
    """The controller of a node, in this process.

    Args:
        directory: The voter's.

    Raises:
        WrongDirectory, VoterLost, VoterRolledBack, CorruptionError, InvalidCertificate: It does not start.
        OSError: An address is taken, or is none of this machine.
    """
    tls, feed, own = node_tls(config), Feed(config.cluster), config.own
    with Quorum(
        config.node, own.quorum, directory, feed.apply, feed.snapshot, feed.restore,
        secret=config.secret, cluster=config.cluster, bind=bind_address(own.quorum),
        server_tls=tls.server, client_tls=tls.client, options=quorum_options(config),
    ) as quorum:  # fmt: skip
        service = Service(quorum, feed, config.times, IO())
        with contextlib.closing(service):
            bind = bind_address(own.controller)
            listener = Listener(bind, config.cluster, config.secret, config.node, service.answer, service.gone, tls=tls.server)
            with contextlib.closing(listener):
                yield quorum


def main(arguments: list[str]) -> int:
    config_path, directory = arguments
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s controller %(name)s: %(message)s")
    die_with(os.getppid())
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal: the parent says when
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        with controller(ClusterConfig.load(config_path), directory) as quorum:
            _say({"ready": True})
            while not select.select([sys.stdin], [], [], _LOOK_S)[0]:
                if quorum.may_restart:
                    return 1
    except (LogdbError, OSError, ValueError) as error:
        _say({"error": str(error)})
        return 1
    return 0


def _say(fields: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(fields) + "\n")
    sys.stdout.flush()


def die_with(parent: int) -> None:
    """Have this process killed when the thread ends that started it."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it ended before
            os._exit(1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
