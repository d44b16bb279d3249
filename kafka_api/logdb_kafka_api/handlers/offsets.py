"""The offset of a time, where a partition begins and ends, and where a leader epoch ends."""

from collections import Counter

from logdb.access.session import AuthorizedSession
from logdb.codec.messages import OFFSET_FOR_LEADER_EPOCH_REQUEST, OFFSET_FOR_LEADER_EPOCH_RESPONSE
from logdb.errors import LogdbError, UnknownTopic
from logdb.log.epochs import EpochEnd
from logdb.log.isolation import ISOLATION_LEVELS, IsolationLevel
from logdb.requests.records import Log
from logdb_kafka_api.api import answers
from logdb_kafka_api.call import Call, Values
from logdb_kafka_api.errors import Code, code_of
from logdb_kafka_api.messages.offsets import LIST_OFFSETS_REQUEST, LIST_OFFSETS_RESPONSE

_LATEST = -1
_ENDS = (_LATEST, -2, -4)  # offsets that need no record: latest, earliest, earliest local
_NONE = -1
_FIRST_OF_TIERS = 9  # version of ListOffsets


@answers(2, LIST_OFFSETS_REQUEST, LIST_OFFSETS_RESPONSE)
async def list_offsets(call: Call) -> Values:
    """A partition that is named twice is refused, as Kafka refuses it: a lookup by time may expand a batch.  So is an unknown isolation."""
    return await call.call(_list_all, call)


def _list_all(call: Call) -> Values:
    isolation_level, topics = ISOLATION_LEVELS[call.values["isolation_level"] == 1], call.values["topics"]
    counts = Counter((topic["name"], one["partition_index"]) for topic in topics for one in topic["partitions"])

    def answer(topic: str, asked: Values) -> Values:
        if counts[topic, asked["partition_index"]] > 1 or call.values["isolation_level"] not in range(len(ISOLATION_LEVELS)):
            return {"partition_index": asked["partition_index"], "error_code": Code.INVALID_REQUEST}
        return _list(call.session, topic, asked, isolation_level, knows_tiers=call.version >= _FIRST_OF_TIERS)

    return {
        "topics": [
            {"name": topic["name"], "partitions": [answer(topic["name"], one) for one in call.each(topic["partitions"])]}
            for topic in topics
        ]
    }


def _list(session: AuthorizedSession, topic: str, asked: Values, isolation_level: IsolationLevel, *, knows_tiers: bool) -> Values:
    partition = asked["partition_index"]
    try:
        log = session.open_log(Log(topic, partition))
        if asked["current_leader_epoch"] != _NONE:
            log.epoch_end(asked["current_leader_epoch"], current_epoch=asked["current_leader_epoch"])
        match asked["timestamp"]:
            case -1:
                log.check_end_known()
                offset, timestamp_ms = log.readable_end_offset(isolation_level), _NONE
            case -2 | -4:  # -4: of what lies on this machine, which is all of it (KIP-405)
                offset, timestamp_ms = log.start_offset, _NONE
            case -3:
                offset, timestamp_ms = log.latest_record() or (_NONE, _NONE)
            case -5 if knows_tiers:  # the last offset in a slower tier, which there is none of (KIP-1005)
                offset, timestamp_ms = _NONE, _NONE
            case timestamp_ms if timestamp_ms < 0:
                return {"partition_index": partition, "error_code": Code.UNSUPPORTED_VERSION}
            case timestamp_ms:
                offset, timestamp_ms = log.record_since(timestamp_ms) or (_NONE, _NONE)
        if asked["timestamp"] not in _ENDS and offset >= log.readable_end_offset(isolation_level):
            offset, timestamp_ms = _NONE, _NONE
        leader_epoch = log.epoch_at(max(offset - (asked["timestamp"] == _LATEST), 0)) if offset >= 0 else _NONE
    except LogdbError as error:
        return {"partition_index": partition, "error_code": code_of(error)}
    return {
        "partition_index": partition,
        "error_code": Code.NONE,
        "offset": offset,
        "timestamp": timestamp_ms,
        "leader_epoch": leader_epoch,
    }


# ---------------------------------------------------------------- leader epochs


@answers(23, OFFSET_FOR_LEADER_EPOCH_REQUEST, OFFSET_FOR_LEADER_EPOCH_RESPONSE)
async def offset_for_leader_epoch(call: Call) -> Values:
    return {
        "topics": await call.call(
            lambda: [
                {"topic": topic["topic"], "partitions": [_epoch_end(call.session, topic, one) for one in call.each(topic["partitions"])]}
                for topic in call.values["topics"]
            ]
        )
    }


def _epoch_end(session: AuthorizedSession, topic: Values, asked: Values) -> Values:
    """Where the epoch ends, or the largest one below it; none where the log has no such epoch.

    An epoch before the first one ends where the log starts: a client whose position is there has lost no record.  A follower then shares
    no epoch with the leader, and must learn of that.

    Source: Kafka's ``LeaderEpochFileCache.endOffsetFor``.
    """
    where, current, epoch = (topic["topic"], asked["partition"]), asked["current_leader_epoch"], asked["leader_epoch"]
    try:
        log = session.open_log(Log(*where))
        topic_id = topic["logdb_topic_id"]
        if topic_id and session.replication is not None and session.replication.leads(*where).topic_id != topic_id:
            raise UnknownTopic(topic["topic"])
        end = log.epoch_end(epoch, current_epoch=None if current == _NONE else current)
        if end is None and not topic_id and epoch != _NONE and epoch < log.epoch_at(log.start_offset):
            end = EpochEnd(epoch, log.start_offset)
    except LogdbError as error:
        return {"partition": asked["partition"], "error_code": code_of(error)}
    return {"partition": asked["partition"], "error_code": Code.NONE, **(end._asdict() if end is not None else {})}
