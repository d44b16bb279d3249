"""SASL, ACLs, and the credentials of users."""

from logdb.codec.schema import BYTES, ERROR_MESSAGE, INT8, INT16, INT32, INT64, STRING, Array, Field, Message, structs

_ERROR = (Field("error_code", INT16), Field("error_message", ERROR_MESSAGE, nullable="0+"))

SASL_HANDSHAKE_REQUEST = Message("SaslHandshakeRequest", "0-1", "none", Field("mechanism", STRING))
SASL_HANDSHAKE_RESPONSE = Message("SaslHandshakeResponse", "0-1", "none", Field("error_code", INT16), Field("mechanisms", Array(STRING)))

SASL_AUTHENTICATE_REQUEST = Message("SaslAuthenticateRequest", "0-2", "2+", Field("auth_bytes", BYTES))
SASL_AUTHENTICATE_RESPONSE = Message(
    "SaslAuthenticateResponse", "0-2", "2+", *_ERROR, Field("auth_bytes", BYTES), Field("session_lifetime_ms", INT64, "1+")
)

_LITERAL = 3  # the pattern type of version 0
_PATTERN_TYPE = Field("pattern_type", INT8, "1+", default=_LITERAL)
_ACCESS = (Field("principal", STRING), Field("host", STRING), Field("operation", INT8), Field("permission_type", INT8))
_FILTER = (
    Field("resource_type_filter", INT8),
    Field("resource_name_filter", STRING, nullable="0+"),
    Field("pattern_type_filter", INT8, "1+", default=_LITERAL),
    Field("principal_filter", STRING, nullable="0+"),
    Field("host_filter", STRING, nullable="0+"),
    Field("operation", INT8),
    Field("permission_type", INT8),
)

DESCRIBE_ACLS_REQUEST = Message("DescribeAclsRequest", "0-3", "2+", *_FILTER)
DESCRIBE_ACLS_RESPONSE = Message(
    "DescribeAclsResponse",
    "0-3",
    "2+",
    Field("throttle_time_ms", INT32),
    *_ERROR,
    Field(
        "resources",
        structs(Field("resource_type", INT8), Field("resource_name", STRING), _PATTERN_TYPE, Field("acls", structs(*_ACCESS))),
    ),
)

CREATE_ACLS_REQUEST = Message(
    "CreateAclsRequest",
    "0-3",
    "2+",
    Field(
        "creations",
        structs(
            Field("resource_type", INT8),
            Field("resource_name", STRING),
            Field("resource_pattern_type", INT8, "1+", default=_LITERAL),
            *_ACCESS,
        ),
    ),
)
CREATE_ACLS_RESPONSE = Message("CreateAclsResponse", "0-3", "2+", Field("throttle_time_ms", INT32), Field("results", structs(*_ERROR)))

DELETE_ACLS_REQUEST = Message("DeleteAclsRequest", "0-3", "2+", Field("filters", structs(*_FILTER)))
DELETE_ACLS_RESPONSE = Message(
    "DeleteAclsResponse",
    "0-3",
    "2+",
    Field("throttle_time_ms", INT32),
    Field(
        "filter_results",
        structs(
            *_ERROR,
            Field(
                "matching_acls",
                structs(*_ERROR, Field("resource_type", INT8), Field("resource_name", STRING), _PATTERN_TYPE, *_ACCESS),
            ),
        ),
    ),
)

DESCRIBE_USER_SCRAM_CREDENTIALS_REQUEST = Message(
    "DescribeUserScramCredentialsRequest", "0", "0+", Field("users", structs(Field("name", STRING)), nullable="0+")
)
DESCRIBE_USER_SCRAM_CREDENTIALS_RESPONSE = Message(
    "DescribeUserScramCredentialsResponse",
    "0",
    "0+",
    Field("throttle_time_ms", INT32),
    *_ERROR,
    Field(
        "results",
        structs(
            Field("user", STRING),
            *_ERROR,
            Field("credential_infos", structs(Field("mechanism", INT8), Field("iterations", INT32))),
        ),
    ),
)

ALTER_USER_SCRAM_CREDENTIALS_REQUEST = Message(
    "AlterUserScramCredentialsRequest",
    "0",
    "0+",
    Field("deletions", structs(Field("name", STRING), Field("mechanism", INT8))),
    Field(
        "upsertions",
        structs(
            Field("name", STRING),
            Field("mechanism", INT8),
            Field("iterations", INT32),
            Field("salt", BYTES),
            Field("salted_password", BYTES),
        ),
    ),
)
ALTER_USER_SCRAM_CREDENTIALS_RESPONSE = Message(
    "AlterUserScramCredentialsResponse",
    "0",
    "0+",
    Field("throttle_time_ms", INT32),
    Field("results", structs(Field("user", STRING), *_ERROR)),
)
