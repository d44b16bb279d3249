"""Producer ids and transactions.

A client learns from ApiVersions that the epoch of its producer rises with each transaction (``transaction.version`` 2, KIP-890).  It
then ends transactions by EndTxn 5, whose answer has the epoch, and adds no partitions beforehand: Produce does.  For all others the
epoch stays.
"""

from logdb.errors import InvalidProducer, InvalidTransactionState, LogdbError, OffsetMetadataTooLarge, ProducerFenced
from logdb.model import INTERNAL_TOPICS, ProducerIdAndEpoch, TopicPartition, by_topic, check_topic_name
from logdb.requests.records import Producers
from logdb.requests.transactions import AddPartitions, CommitTransactionOffsets
from logdb_kafka_api.api import answers
from logdb_kafka_api.call import Call, Values, each_once
from logdb_kafka_api.errors import Code, code_of, coordinator_code_of
from logdb_kafka_api.handlers import group_offsets
from logdb_kafka_api.handlers.partitions import possible
from logdb_kafka_api.messages.transactions import (
    ADD_OFFSETS_TO_TXN_REQUEST,
    ADD_OFFSETS_TO_TXN_RESPONSE,
    ADD_PARTITIONS_TO_TXN_REQUEST,
    ADD_PARTITIONS_TO_TXN_RESPONSE,
    DESCRIBE_PRODUCERS_REQUEST,
    DESCRIBE_PRODUCERS_RESPONSE,
    DESCRIBE_TRANSACTIONS_REQUEST,
    DESCRIBE_TRANSACTIONS_RESPONSE,
    END_TXN_REQUEST,
    END_TXN_RESPONSE,
    INIT_PRODUCER_ID_REQUEST,
    INIT_PRODUCER_ID_RESPONSE,
    LIST_TRANSACTIONS_REQUEST,
    LIST_TRANSACTIONS_RESPONSE,
    TXN_OFFSET_COMMIT_REQUEST,
    TXN_OFFSET_COMMIT_RESPONSE,
)

_FIRST_OF_FENCED = {"init": 4, "add": 2, "end": 2}  # versions whose clients know PRODUCER_FENCED
_FIRST_OF_EPOCH = 5  # version of EndTxn whose answer has the epoch to go on with
_FIRST_OF_ABORTABLE = 4  # version of TxnOffsetCommit whose clients know TRANSACTION_ABORTABLE
_STATES = ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "PrepareEpochFence", "Dead")
_NO_PRODUCER = ProducerIdAndEpoch(-1, -1)
_ANY_DURATION = -1


def _code(error: LogdbError, *, knows_fenced: bool) -> Code:
    if isinstance(error, ProducerFenced) and not knows_fenced:
        return Code.INVALID_PRODUCER_EPOCH
    return coordinator_code_of(error)


def _producer(values: Values) -> ProducerIdAndEpoch:
    return ProducerIdAndEpoch(values["producer_id"], values["producer_epoch"])


@answers(22, INIT_PRODUCER_ID_REQUEST, INIT_PRODUCER_ID_RESPONSE)
async def init_producer_id(call: Call) -> Values:
    values, former = call.values, _producer(call.values)
    if values["transactional_id"] == "" or (former != _NO_PRODUCER and -1 in former):
        return {"error_code": Code.INVALID_REQUEST, **_NO_PRODUCER._asdict()}
    try:
        given = await call.call(
            call.session.init_producer_id,
            values["transactional_id"],
            transaction_timeout_ms=values["transaction_timeout_ms"],
            producer=None if former == _NO_PRODUCER else former,
        )
    except LogdbError as error:
        code = _code(error, knows_fenced=call.version >= _FIRST_OF_FENCED["init"])
        return {"error_code": code, **_NO_PRODUCER._asdict()}
    return {"error_code": Code.NONE, **given._asdict()}


# ---------------------------------------------------------------- the parts of a transaction


@answers(24, ADD_PARTITIONS_TO_TXN_REQUEST, ADD_PARTITIONS_TO_TXN_RESPONSE)
async def add_partitions_to_txn(call: Call) -> Values:
    """All of them become part of the transaction, or none."""
    return await call.call(_added, call)


def _added(call: Call) -> Values:
    codes = _add_partitions(call)
    return {
        "results_by_topic": [
            {
                "name": topic["name"],
                "results_by_partition": [
                    {"partition_index": one, "partition_error_code": codes.get(TopicPartition(topic["name"], one), Code.NONE)}
                    for one in topic["partitions"]
                ],
            }
            for topic in call.values["topics"]
        ]
    }


def _add_partitions(call: Call) -> dict[TopicPartition, Code]:
    """The codes of partitions that were not added."""
    values = call.values
    asked = (TopicPartition(topic["name"], partition) for topic in values["topics"] for partition in topic["partitions"])
    request = AddPartitions(values["transactional_id"], _producer(values), tuple(asked))
    if not values["transactional_id"]:
        return dict.fromkeys(request.partitions, Code.INVALID_REQUEST)
    try:
        request, codes = possible(call.session, request)
        codes |= {one: Code.TOPIC_AUTHORIZATION_FAILED for one in request.partitions if one.topic in INTERNAL_TOPICS}
        if codes:
            return dict.fromkeys(request.partitions, Code.OPERATION_NOT_ATTEMPTED) | codes
        call.session.submit(request)
    except LogdbError as error:
        return dict.fromkeys(request.partitions, _code(error, knows_fenced=call.version >= _FIRST_OF_FENCED["add"]))
    return codes


@answers(25, ADD_OFFSETS_TO_TXN_REQUEST, ADD_OFFSETS_TO_TXN_RESPONSE)
async def add_offsets_to_txn(call: Call) -> Values:
    values = call.values
    if not values["transactional_id"]:
        return {"error_code": Code.INVALID_REQUEST}
    try:
        await call.call(call.session.add_offsets, values["transactional_id"], _producer(values), values["group_id"])
    except LogdbError as error:
        return {"error_code": _code(error, knows_fenced=call.version >= _FIRST_OF_FENCED["add"])}
    return {"error_code": Code.NONE}


@answers(28, TXN_OFFSET_COMMIT_REQUEST, TXN_OFFSET_COMMIT_RESPONSE)
async def txn_offset_commit(call: Call) -> Values:
    """Offsets of the partitions that there are count once the transaction is committed."""
    values = call.values
    member = (values["member_id"], values["generation_id"], values["group_instance_id"])
    offsets = await call.aside(group_offsets.given, values["topics"])
    verify_only = call.version < _FIRST_OF_EPOCH  # as of EndTxn (KIP-890)
    request = CommitTransactionOffsets(values["transactional_id"], _producer(values), values["group_id"], offsets, *member, verify_only)
    return await call.aside(group_offsets.told, values["topics"], await call.call(_commit_offsets, call, request))


def _commit_offsets(call: Call, request: CommitTransactionOffsets) -> dict[TopicPartition, Code]:
    """Commit the offsets of a request; the codes of partitions whose offsets were not committed."""
    codes = dict[TopicPartition, Code]()
    if not (request.transactional_id and request.group_id):
        return dict.fromkeys(request.offsets, Code.INVALID_GROUP_ID if request.transactional_id else Code.INVALID_REQUEST)
    try:
        request, codes = possible(call.session, request)
        call.session.submit(request)
    except ProducerFenced:
        codes |= dict.fromkeys(request.offsets, Code.INVALID_PRODUCER_EPOCH)
    except OffsetMetadataTooLarge as error:  # none is committed: the others once more
        refused = group_offsets.too_large(request.offsets, error)
        codes |= refused | _commit_offsets(call, request.without(refused))
    except LogdbError as error:
        is_abortable = isinstance(error, InvalidTransactionState) and call.version >= _FIRST_OF_ABORTABLE
        codes |= dict.fromkeys(request.offsets, Code.TRANSACTION_ABORTABLE if is_abortable else coordinator_code_of(error))
    return codes


@answers(26, END_TXN_REQUEST, END_TXN_RESPONSE)
async def end_txn(call: Call) -> Values:
    values, tells_epoch = call.values, call.version >= _FIRST_OF_EPOCH
    if not values["transactional_id"]:
        return {"error_code": Code.INVALID_REQUEST}
    try:
        following = await call.call(
            call.session.end_transaction,
            values["transactional_id"],
            _producer(values),
            commit=values["committed"],
            bump_epoch=tells_epoch,
        )
    except LogdbError as error:
        return {"error_code": _code(error, knows_fenced=call.version >= _FIRST_OF_FENCED["end"])}
    return {"error_code": Code.NONE, **following._asdict()}


# ---------------------------------------------------------------- administration


@answers(66, LIST_TRANSACTIONS_REQUEST, LIST_TRANSACTIONS_RESPONSE)
async def list_transactions(call: Call) -> Values:
    values = call.values
    states, producer_ids, longer_ms = set(values["state_filters"]), set(values["producer_id_filters"]), values["duration_filter"]
    try:
        found = await call.call(call.session.transactions)
    except LogdbError as error:
        return {"error_code": coordinator_code_of(error)}
    now_ms = call.session.io.clock_ms()
    return {
        "error_code": Code.NONE,
        "unknown_state_filters": sorted(states.difference(_STATES)),
        "transaction_states": [
            {"transactional_id": one.transactional_id, "producer_id": one.producer.producer_id, "transaction_state": one.state}
            for one in found
            if (not states or one.state in states)
            and (not producer_ids or one.producer.producer_id in producer_ids)
            and (longer_ms <= _ANY_DURATION or (one.start_ms >= 0 and now_ms - one.start_ms > longer_ms))
        ],
    }


@answers(65, DESCRIBE_TRANSACTIONS_REQUEST, DESCRIBE_TRANSACTIONS_RESPONSE)
async def describe_transactions(call: Call) -> Values:
    names = each_once(call.values["transactional_ids"])
    return {"transaction_states": await call.call(lambda: [_described(call, name) for name in call.each(names)])}


def _described(call: Call, transactional_id: str) -> Values:
    if not transactional_id:
        return {"error_code": Code.INVALID_REQUEST, "transactional_id": transactional_id}
    try:
        info = call.session.describe_transaction(transactional_id)
    except InvalidProducer:
        return {"error_code": Code.TRANSACTIONAL_ID_NOT_FOUND, "transactional_id": transactional_id}
    except LogdbError as error:
        return {"error_code": code_of(error), "transactional_id": transactional_id}
    return {
        "error_code": Code.NONE,
        "transactional_id": transactional_id,
        "transaction_state": info.state,
        "transaction_timeout_ms": info.timeout_ms,
        "transaction_start_time_ms": info.start_ms,
        **info.producer._asdict(),
        "topics": [{"topic": topic, "partitions": partitions} for topic, partitions in by_topic(info.partitions).items()],
    }


@answers(61, DESCRIBE_PRODUCERS_REQUEST, DESCRIBE_PRODUCERS_RESPONSE)
async def describe_producers(call: Call) -> Values:
    """The producers that have appended to each partition lately."""
    wanted: dict[str, dict[int, None]] = {}  # each once
    for topic in call.values["topics"]:
        wanted.setdefault(topic["name"], {}).update(dict.fromkeys(topic["partition_indexes"]))
    return {
        "topics": await call.call(
            lambda: [
                {"name": topic, "partitions": [_producers(call, topic, one) for one in call.each(asked)]} for topic, asked in wanted.items()
            ]
        )
    }


def _producers(call: Call, topic: str, partition: int) -> Values:
    answer: Values = {"partition_index": partition, "error_code": Code.NONE}
    try:
        check_topic_name(topic)
        found = call.session.submit(Producers(topic, partition))
    except LogdbError as error:
        return {**answer, "error_code": code_of(error), "error_message": str(error)}
    answer["active_producers"] = [
        {
            "producer_id": one.producer_id,
            "producer_epoch": one.epoch,
            "last_sequence": one.batches[-1].last_sequence if one.batches else -1,
            "last_timestamp": one.timestamp_ms,
            "coordinator_epoch": one.coordinator_epoch,
            "current_txn_start_offset": one.first_offset,
        }
        for one in found
    ]
    return answer
