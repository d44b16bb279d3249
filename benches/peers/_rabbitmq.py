"""A RabbitMQ node of one's own: its name, cookie, data and port mapper are for one operation alone."""

import contextlib
import os
from collections.abc import Iterator

from benches.peers._server import HOST, free_port, not_installed, program, running
from benches.workload import Work

_SCRIPTS = "/usr/lib/rabbitmq/bin"  # Debian's /usr/sbin/rabbitmq-server asks for root, then becomes another user


def no_node() -> str | None:
    """Why there is none here; None if there is."""
    return not_installed("epmd") or not_installed("rabbitmq-server", _SCRIPTS)


@contextlib.contextmanager
def node(work: Work, port: int, config: str, *plugins: str) -> Iterator[None]:
    """A node from when it listens on ``port``."""
    place, mapper = work.directory, free_port()
    (place / "plugins").write_text(f"[{','.join(plugins)}].\n")
    (place / "node.conf").write_text(config)
    settings = {
        "RUNNING_UNDER_SYSTEMD": "true",  # lets the script become the node, so that the process we end is the node itself
        "HOME": place,
        "ERL_EPMD_PORT": mapper,
        "ERL_EPMD_ADDRESS": HOST,
        "RABBITMQ_NODENAME": f"bench-{os.getpid()}@localhost",
        "RABBITMQ_DIST_PORT": free_port(),
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
        "RABBITMQ_CONF_ENV_FILE": place / "none",
        "RABBITMQ_CONFIG_FILE": place / "node.conf",
        "RABBITMQ_ENABLED_PLUGINS_FILE": place / "plugins",
        "RABBITMQ_MNESIA_BASE": place / "data",
        "RABBITMQ_LOG_BASE": place / "log",
    }
    environment = os.environ | {name: str(value) for name, value in settings.items()}
    server = program("rabbitmq-server", _SCRIPTS) or ""
    # The port mapper is started beforehand, as a child: the node would start one that stays when it ends.
    with (
        running([program("epmd") or "", "-port", str(mapper), "-address", HOST], mapper, place / "mapper-output"),
        running([server], port, place / "output", environment),
    ):
        yield
