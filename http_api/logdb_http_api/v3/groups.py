"""Routes for consumer groups in Kafka's REST API v3: members, assignments, lags.

Source: Confluent's kafka-rest, ``api/v3/openapi.yaml``, ``ConsumerGroupsResource``, ``ConsumersResource``,
``ConsumerAssignmentsResource``, ``ConsumerLagsResource``, ``ConsumerGroupLagSummariesResource``.
"""

import re
from collections.abc import Sequence
from typing import Any

from aiohttp import web

from logdb.access.session import AuthorizedSession
from logdb.client.administration import Administration, GroupOffset
from logdb.coordinator.consumer_protocol import PROTOCOL_TYPE, Assignment
from logdb.errors import InvalidMessage, NotAuthorized, UnknownGroup
from logdb.model import INTERNAL_TOPICS, TopicPartition
from logdb.requests.groups import GroupInfo, MemberInfo
from logdb_http_api.door.request import Request, answer
from logdb_http_api.door.routing import Routes
from logdb_http_api.v3 import shapes
from logdb_http_api.v3.resources import CLUSTER, broker_link, collection, not_found, of_cluster, related, resource

GROUPS = CLUSTER + "/consumer-groups"
GROUP = GROUPS + "/{consumer_group_id}"
CONSUMER = GROUP + "/consumers/{consumer_id}"
ASSIGNMENTS = CONSUMER + "/assignments"
_ONE_PARTITION = "/{topic_name}/partitions/{partition_id}"
_LAG_NEEDS = ("Describe Group", "Describe Topic")

routes = Routes()


class _Administration(Administration):
    """The administration methods of a database, for a session."""

    def __init__(self, session: AuthorizedSession) -> None:
        self._asking = session

    @property
    def _session(self) -> AuthorizedSession:
        return self._asking


# ---------------------------------------------------------------- groups


@routes.get(GROUPS, "All consumer groups", needs=("Describe Group",), gives=shapes.all_of(shapes.GROUP))
@of_cluster
async def groups(request: Request) -> web.StreamResponse:
    return await request.call(_all_groups, request)


def _all_groups(request: Request) -> web.Response:
    data = (_group(request, info) for info in _described_groups(request.session))
    return collection(request, "KafkaConsumerGroupList", ("consumer-groups",), data)


def _described_groups(session: AuthorizedSession) -> list[GroupInfo]:
    found = []
    for summary in session.groups():
        try:
            found.append(session.describe_group(summary.group_id))
        except (UnknownGroup, NotAuthorized):  # it was deleted meanwhile; a principal that may list all groups need not see each
            continue
    return found


@routes.get(GROUP, "A consumer group", needs=("Describe Group",), gives=shapes.one(shapes.GROUP))
@of_cluster
async def group(request: Request) -> web.StreamResponse:
    return answer(_group(request, await _described(request)))


async def _described(request: Request) -> GroupInfo:
    return await request.call(request.session.describe_group, request.path("consumer_group_id"))


def _group(request: Request, info: GroupInfo) -> dict[str, Any]:
    place = ("consumer-groups", info.group_id)
    return resource(
        request,
        "KafkaConsumerGroup",
        place,
        f"/consumer-group={info.group_id}",
        consumer_group_id=info.group_id,
        is_simple=not info.protocol_type,
        partition_assignor=info.protocol,
        state=re.sub("(?<=[a-z])(?=[A-Z])", "_", info.state).upper(),
        type="CLASSIC",
        is_mixed_consumer_group=False,
        coordinator=broker_link(request, request.door.access.coordinator(INTERNAL_TOPICS[0], info.group_id)),
        consumers=related(request, *place, "consumers"),
        lag_summary=related(request, *place, "lag-summary"),
    )


# ---------------------------------------------------------------- members and what they read


@routes.get(GROUP + "/consumers", "The members of a group", needs=("Describe Group",), gives=shapes.all_of(shapes.CONSUMER))
@of_cluster
async def consumers(request: Request) -> web.StreamResponse:
    info = await _described(request)
    data = (_consumer(request, info.group_id, member) for member in info.members)
    return await request.call(collection, request, "KafkaConsumerList", ("consumer-groups", info.group_id, "consumers"), data)


@routes.get(CONSUMER, "A member of a group", needs=("Describe Group",), gives=shapes.one(shapes.CONSUMER))
@of_cluster
async def consumer(request: Request) -> web.StreamResponse:
    info, member = await _member_found(request)
    return answer(_consumer(request, info.group_id, member))


async def _member_found(request: Request) -> tuple[GroupInfo, MemberInfo]:
    info, wanted = await _described(request), request.path("consumer_id")
    for member in info.members:
        if member.member_id == wanted:
            return info, member
    raise not_found("Consumer", wanted)


def _consumer(request: Request, group_id: str, member: MemberInfo) -> dict[str, Any]:
    place = ("consumer-groups", group_id, "consumers", member.member_id)
    return resource(
        request,
        "KafkaConsumer",
        place,
        f"/consumer-group={group_id}/consumer={member.member_id}",
        consumer_group_id=group_id,
        consumer_id=member.member_id,
        instance_id=member.group_instance_id,
        client_id=member.client_id,
        assignments=related(request, *place, "assignments"),
    )


@routes.get(ASSIGNMENTS, "The assignments of a member", needs=("Describe Group",), gives=shapes.all_of(shapes.ASSIGNMENT))
@of_cluster
async def assignments(request: Request) -> web.StreamResponse:
    info, member = await _member_found(request)
    place = ("consumer-groups", info.group_id, "consumers", member.member_id, "assignments")

    def found() -> web.Response:
        data = (_assignment(request, info.group_id, member, partition) for partition in _assigned(info, member))
        return collection(request, "KafkaConsumerAssignmentList", place, data)

    return await request.call(found)


@routes.get(
    ASSIGNMENTS + _ONE_PARTITION,
    "An assignment of a member",
    needs=("Describe Group",),
    gives=shapes.one(shapes.ASSIGNMENT),
)
@of_cluster
async def assignment(request: Request) -> web.StreamResponse:
    (info, member), wanted = await _member_found(request), _partition_of(request)
    if wanted not in _assigned(info, member):
        raise not_found("Assignment", wanted)
    return answer(_assignment(request, info.group_id, member, wanted))


def _partition_of(request: Request) -> TopicPartition:
    return TopicPartition(request.path("topic_name"), request.partition("partition_id"))


def _assigned(info: GroupInfo, member: MemberInfo) -> Sequence[TopicPartition]:
    """Sorted; empty if the group does not use the consumers' protocol."""
    if info.protocol_type != PROTOCOL_TYPE:
        return ()
    try:
        return sorted(Assignment.decode(member.assignment).partitions)
    except InvalidMessage:  # the leader is another program with its own format
        return ()


def _assignment(request: Request, group_id: str, member: MemberInfo, partition: TopicPartition) -> dict[str, Any]:
    place = (partition.topic, "partitions", partition.partition)
    return resource(
        request,
        "KafkaConsumerAssignment",
        ("consumer-groups", group_id, "consumers", member.member_id, "assignments", *place),
        f"/consumer-group={group_id}/consumer={member.member_id}/assignment={partition.topic}/partition={partition.partition}",
        consumer_group_id=group_id,
        consumer_id=member.member_id,
        topic_name=partition.topic,
        partition_id=partition.partition,
        partition=related(request, "topics", *place),
        lag=related(request, "consumer-groups", group_id, "lags", *place),
    )


# ---------------------------------------------------------------- how far behind


@routes.get(GROUP + "/lag-summary", "The lag of a group, summed up", needs=_LAG_NEEDS, gives=shapes.one(shapes.LAG_SUMMARY))
@of_cluster
async def lag_summary(request: Request) -> web.StreamResponse:
    found, group_id = await _lags(request), request.path("consumer_group_id")
    if not found:
        raise not_found("Lag of group", group_id)
    worst = max(found, key=_lag_of)
    consumer_id, instance_id, client_id = _reader(worst)
    summary = resource(
        request,
        "KafkaConsumerGroupLagSummary",
        ("consumer-groups", group_id, "lag-summary"),
        f"/consumer-group={group_id}/lag-summary",
        consumer_group_id=group_id,
        max_lag_consumer_id=consumer_id,
        max_lag_instance_id=instance_id,
        max_lag_client_id=client_id,
        max_lag_topic_name=worst.partition.topic,
        max_lag_partition_id=worst.partition.partition,
        max_lag=_lag_of(worst),
        total_lag=sum(map(_lag_of, found)),
        max_lag_consumer=related(request, "consumer-groups", group_id, "consumers", consumer_id),
        max_lag_partition=related(request, "topics", worst.partition.topic, "partitions", worst.partition.partition),
    )
    return answer(summary)


@routes.get(GROUP + "/lags", "The lag of a group in each partition", needs=_LAG_NEEDS, gives=shapes.all_of(shapes.LAG))
@of_cluster
async def lags(request: Request) -> web.StreamResponse:
    found, group_id = await _lags(request), request.path("consumer_group_id")
    data = (_lag(request, group_id, one) for one in found)
    return await request.call(collection, request, "KafkaConsumerLagList", ("consumer-groups", group_id, "lags"), data)


@routes.get(GROUP + "/lags" + _ONE_PARTITION, "The lag of a group in a partition", needs=_LAG_NEEDS, gives=shapes.one(shapes.LAG))
@of_cluster
async def lag(request: Request) -> web.StreamResponse:
    wanted = _partition_of(request)
    for one in await _lags(request):
        if one.partition == wanted:
            return answer(_lag(request, request.path("consumer_group_id"), one))
    raise not_found("Lag in", wanted)


async def _lags(request: Request) -> list[GroupOffset]:
    """Existing partitions with a committed offset of the group."""
    administration = _Administration(request.session)
    found = await request.call(administration.group_offsets, request.path("consumer_group_id"))
    return [one for one in found if one.lag is not None]


def _lag_of(one: GroupOffset) -> int:
    return one.lag or 0


def _reader(one: GroupOffset) -> tuple[str, str | None, str]:
    """Consumer, instance and client that read a partition; empty without one."""
    return ("", None, "") if one.member is None else (one.member.member_id, one.member.group_instance_id, one.member.client_id)


def _lag(request: Request, group_id: str, one: GroupOffset) -> dict[str, Any]:
    consumer_id, instance_id, client_id = _reader(one)
    topic, number = one.partition
    return resource(
        request,
        "KafkaConsumerLag",
        ("consumer-groups", group_id, "lags", topic, "partitions", number),
        f"/consumer-group={group_id}/lag={topic}/partition={number}",
        consumer_group_id=group_id,
        topic_name=topic,
        partition_id=number,
        consumer_id=consumer_id,
        instance_id=instance_id,
        client_id=client_id,
        current_offset=one.committed.offset if one.committed is not None else None,
        log_end_offset=one.end_offset,
        lag=one.lag,
    )
