"""Consumer groups: what their members ask, and what administrators ask about them."""

from collections.abc import Callable
from typing import Any

from logdb.errors import CoordinatorLoading, InvalidGroup, LogdbError, MemberIdRequired, UnknownGroup
from logdb.requests.groups import GroupInfo, JoinResult, MemberInfo
from logdb_kafka_api.api import answers
from logdb_kafka_api.call import Call, Values, each_once
from logdb_kafka_api.errors import Code, coordinator_code_of
from logdb_kafka_api.handlers.rights import operations
from logdb_kafka_api.messages.groups import (
    CONSUMER_GROUP_HEARTBEAT_REQUEST,
    CONSUMER_GROUP_HEARTBEAT_RESPONSE,
    DELETE_GROUPS_REQUEST,
    DELETE_GROUPS_RESPONSE,
    DESCRIBE_GROUPS_REQUEST,
    DESCRIBE_GROUPS_RESPONSE,
    HEARTBEAT_REQUEST,
    HEARTBEAT_RESPONSE,
    JOIN_GROUP_REQUEST,
    JOIN_GROUP_RESPONSE,
    LEAVE_GROUP_REQUEST,
    LEAVE_GROUP_RESPONSE,
    LIST_GROUPS_REQUEST,
    LIST_GROUPS_RESPONSE,
    SYNC_GROUP_REQUEST,
    SYNC_GROUP_RESPONSE,
)

_FIRST_OF_REBALANCE_TIMEOUT, _FIRST_OF_MEMBER_ID, _FIRST_OF_NULL_PROTOCOL, _FIRST_OF_SKIPPING = 1, 4, 7, 9  # versions of JoinGroup
_FIRST_OF_PROTOCOL = 5  # of SyncGroup
_FIRST_OF_MEMBERS = 3  # of LeaveGroup
_NO_GENERATION = -1
_CLASSIC = "classic"  # the type of every group here
_DEAD = "Dead"  # the state of a group that there is not

# ---------------------------------------------------------------- members


@answers(11, JOIN_GROUP_REQUEST, JOIN_GROUP_RESPONSE)
async def join_group(call: Call) -> Values:
    """Answered once all members have joined, or were given up on.

    A leader that has come back to an unchanged group assigns nothing (KIP-814).  A client of an earlier version than 9 does not know
    that: it is told that another member leads.
    """
    values, limits = call.values, call.door.limits
    try:
        if not limits.session_timeout_ms_min <= values["session_timeout_ms"] <= limits.session_timeout_ms_max:
            allowed = f"[{limits.session_timeout_ms_min}, {limits.session_timeout_ms_max}]"
            raise InvalidGroup(f"session_timeout_ms={values['session_timeout_ms']} is outside of {allowed}")
        joining = call.call(
            call.session.join_group,
            values["group_id"],
            member_id=values["member_id"],
            group_instance_id=values["group_instance_id"],
            session_timeout_ms=values["session_timeout_ms"],
            rebalance_timeout_ms=values["rebalance_timeout_ms" if call.version >= _FIRST_OF_REBALANCE_TIMEOUT else "session_timeout_ms"],
            protocol_type=values["protocol_type"],
            protocols=[(one["name"], one["metadata"]) for one in values["protocols"]],
            client_id=call.client_id or "",
            require_member_id=call.version >= _FIRST_OF_MEMBER_ID,
        )
        result: JoinResult = await call.outcome(await joining)  # the future is no local: it has the error, whose traceback has this frame
    except LogdbError as error:
        member_id = error.member_id if isinstance(error, MemberIdRequired) else values["member_id"]
        protocol = None if call.version >= _FIRST_OF_NULL_PROTOCOL else ""
        return {"error_code": _join_code(error, values["group_id"]), "member_id": member_id, "protocol_name": protocol}
    led_by_another = result.skip_assignment and call.version < _FIRST_OF_SKIPPING
    return {
        "error_code": Code.NONE,
        "generation_id": result.generation,
        "protocol_type": result.protocol_type,
        "protocol_name": result.protocol,
        "leader": result.former_leader_id if led_by_another else result.leader_id,
        "skip_assignment": result.skip_assignment,
        "member_id": result.member_id,
        "members": [] if led_by_another else [one._asdict() for one in result.members],
    }


def _join_code(error: LogdbError, group_id: str) -> Code:
    """A group with a name that is refused all the same has a session timeout that is out of bounds."""
    return Code.INVALID_SESSION_TIMEOUT if isinstance(error, InvalidGroup) and group_id else coordinator_code_of(error)


@answers(14, SYNC_GROUP_REQUEST, SYNC_GROUP_RESPONSE)
async def sync_group(call: Call) -> Values:
    """Answered once the leader has brought the assignments."""
    values = call.values
    if not values["group_id"]:
        return {"error_code": Code.INVALID_GROUP_ID}
    if call.version >= _FIRST_OF_PROTOCOL and None in {values["protocol_type"], values["protocol_name"]}:
        return {"error_code": Code.INCONSISTENT_GROUP_PROTOCOL}
    try:
        syncing = call.call(
            call.session.sync_group,
            values["group_id"],
            generation=values["generation_id"],
            member_id=values["member_id"],
            group_instance_id=values["group_instance_id"],
            assignments={one["member_id"]: one["assignment"] for one in values["assignments"]},
            protocol_type=values["protocol_type"],
            protocol=values["protocol_name"],
        )
        result = await call.outcome(await syncing)  # as above
    except CoordinatorLoading:  # the rebalance is lost, and clients expect COORDINATOR_LOAD_IN_PROGRESS of JoinGroup alone
        return {"error_code": Code.REBALANCE_IN_PROGRESS}
    except LogdbError as error:
        return {"error_code": coordinator_code_of(error)}
    return {
        "error_code": Code.NONE,
        "protocol_type": result.protocol_type,
        "protocol_name": result.protocol,
        "assignment": result.assignment,
    }


@answers(12, HEARTBEAT_REQUEST, HEARTBEAT_RESPONSE)
async def heartbeat(call: Call) -> Values:
    """While the coordinator is loaded, each member is taken for one: a client that is refused then may stop for good (aiokafka)."""
    values = call.values
    if not values["group_id"]:
        return {"error_code": Code.INVALID_GROUP_ID}
    code = await _code(
        call,
        call.session.heartbeat,
        values["group_id"],
        generation=values["generation_id"],
        member_id=values["member_id"],
        group_instance_id=values["group_instance_id"],
    )
    return {"error_code": Code.NONE if code is Code.COORDINATOR_LOAD_IN_PROGRESS else code}


@answers(13, LEAVE_GROUP_REQUEST, LEAVE_GROUP_RESPONSE)
async def leave_group(call: Call) -> Values:
    """Members leave, each with an error of its own; before version 3 there is one."""
    values = call.values
    if not values["group_id"]:
        return {"error_code": Code.INVALID_GROUP_ID}
    if call.version < _FIRST_OF_MEMBERS:
        return {"error_code": await _code(call, call.session.leave_group, values["group_id"], values["member_id"])}
    members = []
    for one in each_once(values["members"], "member_id", "group_instance_id"):
        member_id, instance = one["member_id"], one["group_instance_id"]
        code = await _code(call, call.session.leave_group, values["group_id"], member_id, group_instance_id=instance)
        members.append({"member_id": member_id, "group_instance_id": instance, "error_code": code})
    whole = Code.GROUP_AUTHORIZATION_FAILED
    return {"error_code": whole if members and all(one["error_code"] == whole for one in members) else Code.NONE, "members": members}


async def _code(call: Call, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Code:
    """The code of what a call comes to."""
    try:
        await call.call(function, *args, **kwargs)
    except LogdbError as error:
        return coordinator_code_of(error)
    return Code.NONE


# ---------------------------------------------------------------- administration


@answers(16, LIST_GROUPS_REQUEST, LIST_GROUPS_RESPONSE)
async def list_groups(call: Call) -> Values:
    states = {one.lower() for one in call.values["states_filter"]}
    types = {one.lower() for one in call.values["types_filter"]}
    try:
        found = await call.call(call.session.groups)
    except LogdbError as error:
        return {"error_code": coordinator_code_of(error)}
    return {
        "error_code": Code.NONE,
        "groups": [
            {"group_id": one.group_id, "protocol_type": one.protocol_type, "group_state": one.state, "group_type": _CLASSIC}
            for one in found
            if (not states or one.state.lower() in states) and (not types or _CLASSIC in types)
        ],
    }


@answers(15, DESCRIBE_GROUPS_REQUEST, DESCRIBE_GROUPS_RESPONSE)
async def describe_groups(call: Call) -> Values:
    return {"groups": await call.call(lambda: [_described(call, group_id) for group_id in call.each(each_once(call.values["groups"]))])}


def _described(call: Call, group_id: str) -> Values:
    try:
        info = call.session.describe_group(group_id)
    except UnknownGroup:
        info = GroupInfo(group_id, _DEAD, "", "", _NO_GENERATION, "", ())
    except LogdbError as error:
        return {"error_code": coordinator_code_of(error), "group_id": group_id}
    described = {
        "error_code": Code.NONE,
        "group_id": group_id,
        "group_state": info.state,
        "protocol_type": info.protocol_type,
        "protocol_data": info.protocol,
        "members": list(map(_member, info.members)),
    }
    if call.values["include_authorized_operations"]:
        described["authorized_operations"] = operations(call.session, "Group", group_id)
    return described


def _member(info: MemberInfo) -> Values:
    """A member; Kafka writes its host as Java does an address without a name."""
    return {
        "member_id": info.member_id,
        "group_instance_id": info.group_instance_id,
        "client_id": info.client_id,
        "client_host": f"/{info.client_host}",
        "member_metadata": info.metadata,
        "member_assignment": info.assignment,
    }


@answers(42, DELETE_GROUPS_REQUEST, DELETE_GROUPS_RESPONSE)
async def delete_groups(call: Call) -> Values:
    names = each_once(call.values["groups_names"])
    return {"results": [{"group_id": name, "error_code": await _code(call, call.session.delete_group, name)} for name in names]}


@answers(68, CONSUMER_GROUP_HEARTBEAT_REQUEST, CONSUMER_GROUP_HEARTBEAT_RESPONSE)
async def consumer_group_heartbeat(_: Call) -> Values:
    """Refuse a member of KIP-848's protocol, as a Kafka does that has the protocol switched off.

    The API is advertised for this answer: librdkafka shows it as a fatal error.  Without the API librdkafka waits for ever.
    """
    return {"error_code": Code.UNSUPPORTED_VERSION, "error_message": "group.protocol=consumer is not supported; set group.protocol=classic"}
