"""The authentication of a client."""

from logdb.errors import AuthenticationFailed
from logdb.requests.users import ScramCredential
from logdb.serving.shares import NoRoom
from logdb_kafka_api import sasl
from logdb_kafka_api.api import answers
from logdb_kafka_api.call import Call, Values
from logdb_kafka_api.errors import Code
from logdb_kafka_api.messages.security import (
    SASL_AUTHENTICATE_REQUEST,
    SASL_AUTHENTICATE_RESPONSE,
    SASL_HANDSHAKE_REQUEST,
    SASL_HANDSHAKE_RESPONSE,
)

_RAW_VERSION = 0  # of SaslHandshake, behind which messages of the mechanism come without a header


@answers(17, SASL_HANDSHAKE_REQUEST, SASL_HANDSHAKE_RESPONSE, before_authentication=True)
async def sasl_handshake(call: Call) -> Values:
    """Begin the mechanism; there is none where nothing is to be shown, or the client has shown it."""
    client, door = call.client, call.door
    is_done = client.identity is not None and isinstance(client.identity.credential, ScramCredential)
    if is_done or not door.access.authentication:
        return {"error_code": Code.ILLEGAL_SASL_STATE, "mechanisms": sasl.MECHANISMS}
    client.exchange = sasl.begin(call.values["mechanism"], door.access, door.logins, client.host)
    if client.exchange is None:
        return {"error_code": Code.UNSUPPORTED_SASL_MECHANISM, "mechanisms": sasl.MECHANISMS}
    client.is_raw = call.version == _RAW_VERSION
    return {"error_code": Code.NONE, "mechanisms": sasl.MECHANISMS}


@answers(36, SASL_AUTHENTICATE_REQUEST, SASL_AUTHENTICATE_RESPONSE, before_authentication=True)
async def sasl_authenticate(call: Call) -> Values:
    """Go on with the exchange; a client that fails is told so, and its connection is closed."""
    client = call.client
    if client.exchange is None:
        client.is_ending = True
        return {"error_code": Code.ILLEGAL_SASL_STATE, "error_message": "SaslAuthenticate before SaslHandshake", "auth_bytes": b""}
    try:
        return {"error_code": Code.NONE, "error_message": None, "auth_bytes": await client.go_on(call.values["auth_bytes"])}
    except (AuthenticationFailed, NoRoom) as error:
        client.is_ending = True
        return {"error_code": Code.SASL_AUTHENTICATION_FAILED, "error_message": str(error), "auth_bytes": b""}
