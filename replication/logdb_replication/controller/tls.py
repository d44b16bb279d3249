"""TLS between nodes: each side shows a certificate of the cluster's authorities; TLS 1.3 alone."""

import ssl
from typing import NamedTuple

from logdb.errors import InvalidCertificate
from logdb_replication.config import ClusterConfig


class NodeTls(NamedTuple):
    """For connections that a node accepts, and those that it opens; None: they are not encrypted."""

    server: ssl.SSLContext | None
    client: ssl.SSLContext | None


def node_tls(config: ClusterConfig) -> NodeTls:
    """As a ``cluster.toml`` wants it; raises InvalidCertificate."""
    if config.tls_cert is None:
        return NodeTls(None, None)
    return NodeTls(_context(config, ssl.PROTOCOL_TLS_SERVER), _context(config, ssl.PROTOCOL_TLS_CLIENT))


def _context(config: ClusterConfig, protocol: int) -> ssl.SSLContext:
    assert config.tls_cert is not None
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    try:
        context.load_cert_chain(config.tls_cert, config.tls_key)
        context.load_verify_locations(config.tls_ca)
    except (OSError, ValueError) as error:
        raise InvalidCertificate(", ".join(filter(None, (config.tls_cert, config.tls_key, config.tls_ca))), str(error)) from error
    context.verify_mode = ssl.CERT_REQUIRED
    return context
