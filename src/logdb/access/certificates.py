"""The principal of a client certificate, by one of two rules.

The TLS handshake has verified the certificate before it comes here.

    rule    subject C=DE, O=Acme, OU=ops, CN=alice
    cn      User:alice
    dn      User:CN=alice,OU=ops,O=Acme,C=DE

Source: RFC 2253 for the DN, with the keywords that Kafka's default (Java's ``X500Principal.getName``) has for attributes; others are
written as ``ssl`` names them.
"""

import ssl
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Literal, TypeAlias

from logdb.errors import AuthenticationFailed
from logdb.requests.principals import Principal

PrincipalRule: TypeAlias = Literal["cn", "dn"]

PRINCIPAL_RULES: tuple[PrincipalRule, ...] = ("cn", "dn")
_KEYWORDS = {
    "commonName": "CN",
    "localityName": "L",
    "stateOrProvinceName": "ST",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "countryName": "C",
    "streetAddress": "STREET",
    "domainComponent": "DC",
    "userId": "UID",
}  # RFC 2253, section 2.3


def principal_of(certificate: Mapping[str, Any], rule: PrincipalRule) -> Principal:
    """The principal of a checked certificate.

    Args:
        certificate: What ``SSLSocket.getpeercert`` returns.

    Raises:
        AuthenticationFailed: By rule ``cn`` its subject has no common name, or several; by rule ``dn`` it is empty.
    """
    subject = certificate.get("subject", ())
    if rule == "dn":
        names = [distinguished_name(subject)]
    else:
        names = [value for parts in subject for attribute, value in parts if attribute == "commonName"]
    if len(names) != 1 or not names[0]:
        count = len([name for name in names if name])
        found = f"{count} common names: must have one" if rule == "cn" else "no subject: must have one"
        raise AuthenticationFailed(f"the client's certificate has {found}")
    return Principal("User", names[0])


def expires_ms(certificate: Mapping[str, Any]) -> int:
    """When a certificate expires, in ms since 1970; ``certificate`` as ``SSLSocket.getpeercert`` returns it."""
    return _milliseconds(certificate["notAfter"])


@lru_cache(1024)
def _milliseconds(text: str) -> int:
    return int(ssl.cert_time_to_seconds(text)) * 1000


def distinguished_name(subject: tuple[tuple[tuple[str, str], ...], ...]) -> str:
    """A subject as RFC 2253 writes it: last part first."""
    parts = ("+".join(f"{_KEYWORDS.get(attribute, attribute)}={_escaped(value)}" for attribute, value in part) for part in subject[::-1])
    return ",".join(parts)


def _escaped(value: str) -> str:
    text = "".join(f"\\{char}" if char in ',+"\\<>;' else char for char in value)
    if text.startswith(("#", " ")):
        text = "\\" + text
    return text[:-1] + "\\ " if value.endswith(" ") and len(value) > 1 else text
