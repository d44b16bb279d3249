"""ACLs, in Kafka's numbers."""

from collections.abc import Mapping
from typing import Any

from logdb.errors import InvalidSecurity, LogdbError
from logdb.mistakes import one_of
from logdb.requests.acls import Acl, AclFilter, PatternType, Permission
from logdb.requests.principals import Principal
from logdb.requests.resources import Operation, ResourceType
from logdb_kafka_api.api import answers
from logdb_kafka_api.call import Call, Values
from logdb_kafka_api.errors import Code, code_of
from logdb_kafka_api.handlers.rights import CODES
from logdb_kafka_api.messages.security import (
    CREATE_ACLS_REQUEST,
    CREATE_ACLS_RESPONSE,
    DELETE_ACLS_REQUEST,
    DELETE_ACLS_RESPONSE,
    DESCRIBE_ACLS_REQUEST,
    DESCRIBE_ACLS_RESPONSE,
)

_ANY, _MATCH = 1, 2
_TYPES: Mapping[int, ResourceType] = {2: "Topic", 3: "Group", 4: "Cluster", 5: "TransactionalId"}
_PATTERNS: Mapping[int, PatternType] = {3: "Literal", 4: "Prefixed"}
_PERMISSIONS: Mapping[int, Permission] = {2: "Deny", 3: "Allow"}
_OPERATIONS: Mapping[int, Operation] = {code: operation for operation, code in CODES.items()}
_NUMBERS: Mapping[str, int] = {name: code for table in (_TYPES, _PATTERNS, _PERMISSIONS, _OPERATIONS) for code, name in table.items()}


def _word(what: str, table: Mapping[int, Any], code: int) -> Any:
    """The word for a number.

    Raises:
        InvalidSecurity: There is none.
    """
    if code not in table:
        raise InvalidSecurity(f"{what} {code}: must be {one_of(f'{known} ({name})' for known, name in table.items())}")
    return table[code]


def _principal(text: str) -> Principal:
    try:
        return Principal.parse(text)
    except ValueError as error:
        raise InvalidSecurity(str(error)) from None


def _acl(creation: Values) -> Acl:
    """The ACL of a request.

    Raises:
        InvalidSecurity: It is invalid.
    """
    acl = Acl(
        _principal(creation["principal"]),
        creation["host"],
        _word("operation", _OPERATIONS, creation["operation"]),
        _word("permission type", _PERMISSIONS, creation["permission_type"]),
        _word("resource type", _TYPES, creation["resource_type"]),
        _word("pattern type", _PATTERNS, creation["resource_pattern_type"]),
        creation["resource_name"],
    )
    try:
        return acl.check()
    except ValueError as error:
        raise InvalidSecurity(str(error)) from None


def _filter(asked: Values) -> AclFilter:
    """The filter of a request.

    Raises:
        InvalidSecurity: It is invalid.
    """
    pattern, name = asked["pattern_type_filter"], asked["resource_name_filter"]

    def one_or_any(what: str, table: Mapping[int, Any], code: int) -> Any:
        return None if code == _ANY else _word(what, table, code)

    return AclFilter(
        principal=None if asked["principal_filter"] is None else _principal(asked["principal_filter"]),
        host=asked["host_filter"],
        operation=one_or_any("operation", _OPERATIONS, asked["operation"]),
        permission=one_or_any("permission type", _PERMISSIONS, asked["permission_type"]),
        resource_type=one_or_any("resource type", _TYPES, asked["resource_type_filter"]),
        pattern_type=None if pattern == _MATCH else one_or_any("pattern type", _PATTERNS, pattern),
        name=name,
        match=pattern == _MATCH,
    )


def _of_resource(acl: Acl) -> Values:
    return {
        "resource_type": _NUMBERS[acl.resource_type],
        "resource_name": acl.name,
        "pattern_type": _NUMBERS[acl.pattern_type],
    }


def _access(acl: Acl) -> Values:
    return {
        "principal": str(acl.principal),
        "host": acl.host,
        "operation": _NUMBERS[acl.operation],
        "permission_type": _NUMBERS[acl.permission],
    }


def _failed(error: LogdbError) -> Values:
    return {"error_code": code_of(error), "error_message": str(error)}


_DONE: Values = {"error_code": Code.NONE, "error_message": None}


@answers(29, DESCRIBE_ACLS_REQUEST, DESCRIBE_ACLS_RESPONSE)
async def describe_acls(call: Call) -> Values:
    """The ACLs that a filter selects, by resource."""
    try:
        found = await call.call(call.session.security.acls, [_filter(call.values)])
    except LogdbError as error:
        return {**_failed(error), "resources": []}
    resources: dict[tuple[str, str, str], Values] = {}
    for acl in found:
        resource = resources.setdefault((acl.resource_type, acl.pattern_type, acl.name), {**_of_resource(acl), "acls": []})
        resource["acls"].append(_access(acl))
    return {**_DONE, "resources": list(resources.values())}


@answers(30, CREATE_ACLS_REQUEST, CREATE_ACLS_RESPONSE)
async def create_acls(call: Call) -> Values:
    """Create each ACL by itself."""
    return {"results": [await call.call(_create, call, one) for one in call.values["creations"]]}


def _create(call: Call, creation: Values) -> Values:
    try:
        call.session.security.add_acls([_acl(creation)])
    except LogdbError as error:
        return _failed(error)
    return _DONE


@answers(31, DELETE_ACLS_REQUEST, DELETE_ACLS_RESPONSE)
async def delete_acls(call: Call) -> Values:
    """Delete what each filter selects."""
    return {"filter_results": [await call.call(_delete, call, one) for one in call.values["filters"]]}


def _delete(call: Call, asked: Values) -> Values:
    try:
        gone = call.session.security.delete_acls([_filter(asked)])
    except LogdbError as error:
        return {**_failed(error), "matching_acls": []}
    return {**_DONE, "matching_acls": [{**_DONE, **_of_resource(acl), **_access(acl)} for acl in gone]}
