"""The token by which the nodes of a cluster know one another at their HTTP doors."""

import base64
import hmac

_LABEL = b"logdb cluster token"


def cluster_token(secret: bytes, cluster: str) -> str:
    """For ``Authorization: Bearer``: each node makes it of the secret, so it is stored nowhere."""
    return base64.urlsafe_b64encode(hmac.digest(secret, _LABEL + cluster.encode(), "sha256")).rstrip(b"=").decode()
