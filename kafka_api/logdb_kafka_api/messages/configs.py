"""Configs of topics and brokers, and quotas of clients."""

from logdb.codec.schema import BOOL, ERROR_MESSAGE, FLOAT64, INT8, INT16, INT32, STRING, Array, Field, Message, structs

_RESOURCE = (Field("resource_type", INT8), Field("resource_name", STRING))
_ERROR = (Field("error_code", INT16), Field("error_message", ERROR_MESSAGE, nullable="0+"))
_ENTITY = structs(Field("entity_type", STRING), Field("entity_name", STRING, nullable="0+"))

DESCRIBE_CONFIGS_REQUEST = Message(
    "DescribeConfigsRequest",
    "0-4",
    "4+",
    Field("resources", structs(*_RESOURCE, Field("configuration_keys", Array(STRING), nullable="0+"))),
    Field("include_synonyms", BOOL, "1+"),
    Field("include_documentation", BOOL, "3+"),
)
DESCRIBE_CONFIGS_RESPONSE = Message(
    "DescribeConfigsResponse",
    "0-4",
    "4+",
    Field("throttle_time_ms", INT32),
    Field(
        "results",
        structs(
            *_ERROR,
            *_RESOURCE,
            Field(
                "configs",
                structs(
                    Field("name", STRING),
                    Field("value", STRING, nullable="0+"),
                    Field("read_only", BOOL),
                    Field("config_source", INT8, "1+", default=-1),
                    Field("is_default", BOOL, "0"),
                    Field("is_sensitive", BOOL),
                    Field(
                        "synonyms",
                        structs(Field("name", STRING), Field("value", STRING, nullable="0+"), Field("source", INT8)),
                        "1+",
                    ),
                    Field("config_type", INT8, "3+"),
                    Field("documentation", STRING, "3+", nullable="3+"),
                ),
            ),
        ),
    ),
)

ALTER_CONFIGS_REQUEST = Message(
    "AlterConfigsRequest",
    "0-2",
    "2+",
    Field("resources", structs(*_RESOURCE, Field("configs", structs(Field("name", STRING), Field("value", STRING, nullable="0+"))))),
    Field("validate_only", BOOL),
)
ALTER_CONFIGS_RESPONSE = Message(
    "AlterConfigsResponse", "0-2", "2+", Field("throttle_time_ms", INT32), Field("responses", structs(*_ERROR, *_RESOURCE))
)

INCREMENTAL_ALTER_CONFIGS_REQUEST = Message(
    "IncrementalAlterConfigsRequest",
    "0-1",
    "1+",
    Field(
        "resources",
        structs(
            *_RESOURCE,
            Field("configs", structs(Field("name", STRING), Field("config_operation", INT8), Field("value", STRING, nullable="0+"))),
        ),
    ),
    Field("validate_only", BOOL),
)
INCREMENTAL_ALTER_CONFIGS_RESPONSE = Message(
    "IncrementalAlterConfigsResponse", "0-1", "1+", Field("throttle_time_ms", INT32), Field("responses", structs(*_ERROR, *_RESOURCE))
)

LIST_CONFIG_RESOURCES_REQUEST = Message("ListConfigResourcesRequest", "0-1", "0+", Field("resource_types", Array(INT8), "1+"))
LIST_CONFIG_RESOURCES_RESPONSE = Message(
    "ListConfigResourcesResponse",
    "0-1",
    "0+",
    Field("throttle_time_ms", INT32),
    Field("error_code", INT16),
    Field("config_resources", structs(Field("resource_name", STRING), Field("resource_type", INT8, "1+", default=16))),
)

DESCRIBE_CLIENT_QUOTAS_REQUEST = Message(
    "DescribeClientQuotasRequest",
    "0-1",
    "1+",
    Field("components", structs(Field("entity_type", STRING), Field("match_type", INT8), Field("match", STRING, nullable="0+"))),
    Field("strict", BOOL),
)
DESCRIBE_CLIENT_QUOTAS_RESPONSE = Message(
    "DescribeClientQuotasResponse",
    "0-1",
    "1+",
    Field("throttle_time_ms", INT32),
    *_ERROR,
    Field(
        "entries",
        structs(Field("entity", _ENTITY), Field("values", structs(Field("key", STRING), Field("value", FLOAT64)))),
        nullable="0+",
    ),
)

ALTER_CLIENT_QUOTAS_REQUEST = Message(
    "AlterClientQuotasRequest",
    "0-1",
    "1+",
    Field(
        "entries",
        structs(
            Field("entity", _ENTITY),
            Field("ops", structs(Field("key", STRING), Field("value", FLOAT64), Field("remove", BOOL))),
        ),
    ),
    Field("validate_only", BOOL),
)
ALTER_CLIENT_QUOTAS_RESPONSE = Message(
    "AlterClientQuotasResponse",
    "0-1",
    "1+",
    Field("throttle_time_ms", INT32),
    Field("entries", structs(*_ERROR, Field("entity", _ENTITY))),
)
