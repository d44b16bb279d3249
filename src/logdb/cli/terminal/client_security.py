"""How one of Kafka's clients is known to a server, and knows it: ``security.protocol``, ``sasl.*`` and ``ssl.*``."""

import re
from collections.abc import Mapping
from typing import NamedTuple

import click

from logdb.mistakes import one_of

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_OF_JAAS = re.compile(r"""\b(username|password)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'([^']*)'|([^\s;]+))""")


class ClientSecurity(NamedTuple):
    """Credentials, certificates and TLS; None: not given."""

    tls: bool = False
    user: str | None = None
    password: str | None = None
    ca_file: str | None = None
    cert_file: str | None = None


def of_properties(properties: Mapping[str, str]) -> ClientSecurity:
    """What the properties of a client say of security; those of Java's clients, and of librdkafka's.

    Raises:
        click.UsageError: There is no such protocol, or a store is not PEM.
    """
    protocol = properties.get("security.protocol", "PLAINTEXT").upper()
    if protocol not in PROTOCOLS:
        raise click.UsageError(f"security.protocol={protocol}: must be {one_of(PROTOCOLS)}")
    credentials: dict[str, str] = {}
    if protocol.startswith("SASL"):
        for name, *texts in _OF_JAAS.findall(properties.get("sasl.jaas.config", "")):
            credentials[name] = re.sub(r"\\(.)", r"\1", "".join(texts))
        for name in ("username", "password"):
            if f"sasl.{name}" in properties:
                credentials[name] = properties[f"sasl.{name}"]
        if credentials.keys() != {"username", "password"}:
            raise click.UsageError(f"security.protocol={protocol} needs username and password in sasl.jaas.config")
    tls = protocol.endswith("SSL")
    return ClientSecurity(
        tls=tls,
        user=credentials.get("username"),
        password=credentials.get("password"),
        ca_file=properties.get("ssl.ca.location") or _store(properties, "truststore") if tls else None,
        cert_file=properties.get("ssl.certificate.location") or _store(properties, "keystore") if tls else None,
    )


def _store(properties: Mapping[str, str], kind: str) -> str | None:
    path = properties.get(f"ssl.{kind}.location")
    if path is not None and properties.get(f"ssl.{kind}.type", "JKS").upper() != "PEM":
        raise click.UsageError(f"ssl.{kind}.location={path}: must be a PEM file; set ssl.{kind}.type=PEM")
    return path
