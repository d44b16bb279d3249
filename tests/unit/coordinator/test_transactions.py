from typing import Any

import pytest

from logdb.coordinator.effects import ActionDone, ActionFailed, SyncPartitions, TimerFired, WriteMarkers
from logdb.coordinator.records import TransactionValue, parse_transaction_value, transaction_key, transaction_value
from logdb.coordinator.transactions import EPOCH_MAX
from logdb.errors import (
    ConcurrentTransactions,
    DiskFull,
    InvalidMessage,
    InvalidProducer,
    InvalidTransactionState,
    InvalidTransactionTimeout,
    ProducerFenced,
)
from logdb.model import ProducerIdAndEpoch, TopicPartition
from logdb.requests.transactions import AbortTransaction, AddPartitions, EndTransaction, InitProducerId
from support.coordination import FULL, Entry, transaction_runner

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
DAY_MS = 86_400_000


class Transactions:
    """The transactional id x, asked in the shortest way."""

    def __init__(self, **config: Any) -> None:
        self.runner = transaction_runner(**config)

    def start_init(self, **fields: Any) -> int:
        return self.runner.start(InitProducerId, **{"transactional_id": "x", "transaction_timeout_ms": 60_000} | fields)

    def init(self, **fields: Any) -> ProducerIdAndEpoch:
        return self.runner.answer(self.start_init(**fields))  # type: ignore[no-any-return]

    def add(self, producer: ProducerIdAndEpoch, *partitions: TopicPartition, transactional_id: str = "x") -> None:
        self.runner.call(AddPartitions, transactional_id=transactional_id, producer=producer, partitions=partitions or (A0,))

    def start_end(self, producer: ProducerIdAndEpoch, *, commit: bool = True, **fields: Any) -> int:
        return self.runner.start(EndTransaction, **{"transactional_id": "x", "producer": producer, "commit": commit} | fields)

    def end(self, producer: ProducerIdAndEpoch, *, commit: bool = True, **fields: Any) -> ProducerIdAndEpoch:
        """All of it, with its actions."""
        ticket = self.start_end(producer, commit=commit, **fields)
        self.runner.act_all()
        return self.runner.answer(ticket)  # type: ignore[no-any-return]

    def begin(self, *partitions: TopicPartition) -> ProducerIdAndEpoch:
        producer = self.init()
        self.add(producer, *partitions)
        return producer

    @property
    def info(self) -> Any:
        return self.runner.coordinator.describe("x")

    @property
    def state(self) -> str:
        return str(self.info.state)

    def recorded(self) -> list[TransactionValue]:
        return [parse_transaction_value(entry.record.value) for entry in self.runner.log if isinstance(entry, Entry) and entry.record.value]


@pytest.fixture
def x() -> Transactions:
    return Transactions()


def next_epoch(producer: ProducerIdAndEpoch, by: int = 1) -> ProducerIdAndEpoch:
    return ProducerIdAndEpoch(producer.producer_id, producer.producer_epoch + by)


def at_epoch(x: Transactions, epoch: int) -> ProducerIdAndEpoch:
    """As if the id had come so far."""
    producer = x.init()
    value = x.recorded()[-1]._replace(producer_epoch=epoch)
    x.runner.coordinator.apply(transaction_key("x"), transaction_value(value), offset=0)
    return ProducerIdAndEpoch(producer.producer_id, epoch)


# ---------------------------------------------------------------- init


def test_a_new_id_gets_a_producer_id(x: Transactions) -> None:
    assert x.init() == (1000, 0)
    assert x.init(transactional_id="y") == (1001, 0)
    assert x.state == "Empty"


def test_empty_to_empty_a_new_instance_gets_the_next_epoch(x: Transactions) -> None:
    assert [x.init() for _ in range(3)] == [(1000, 0), (1000, 1), (1000, 2)]
    with pytest.raises(ProducerFenced) as fenced:
        x.add(ProducerIdAndEpoch(1000, 1))
    assert (fenced.value.producer_epoch, fenced.value.current_epoch) == (1, 2)


@pytest.mark.parametrize("commit", [True, False])
def test_complete_to_empty_a_new_instance_gets_the_next_epoch(x: Transactions, commit: bool) -> None:
    last = x.end(x.begin(A0), commit=commit)
    assert x.init() == next_epoch(last)
    assert (x.state, x.info.partitions, x.info.start_ms) == ("Empty", (), -1)
    with pytest.raises(ProducerFenced):
        x.add(last)


def test_the_next_epoch_is_on_the_disk_before_it_is_given_out(x: Transactions) -> None:
    x.init()
    for _ in range(2):
        x.init()
        assert x.runner.synced == len(x.runner.log)


def test_ongoing_to_prepare_abort_by_a_new_instance(x: Transactions) -> None:
    old = x.begin(A0, B0)
    ticket = x.start_init()
    assert x.state == "PrepareAbort"
    assert x.runner.waits(ticket)
    action = x.runner.act()
    assert action == WriteMarkers("x", next_epoch(old), frozenset({A0, B0}), False, 0, old.producer_epoch + 1)
    assert x.runner.answer(ticket) == next_epoch(old, 2)
    assert x.state == "Empty"
    for call in (x.add, x.end):
        with pytest.raises(ProducerFenced):
            call(old)


def test_a_new_instance_waits_for_a_commit_that_was_asked_for(x: Transactions) -> None:
    producer = x.begin()
    end, init = x.start_end(producer), x.start_init()
    assert x.runner.waits(init)
    x.runner.act_all()
    assert x.runner.answer(end) == next_epoch(producer)
    assert x.runner.answer(init) == next_epoch(producer, 2)
    assert [value.status for value in x.recorded()[-2:]] == [4, 0]


def test_several_new_instances_wait_and_the_last_one_stays(x: Transactions) -> None:
    x.begin()
    tickets = [x.start_init() for _ in range(3)]
    x.runner.act_all()
    producers = [x.runner.answer(ticket) for ticket in tickets]
    assert producers == [(1000, 2), (1000, 3), (1000, 4)]
    x.add(producers[-1])
    for producer in producers[:-1]:
        with pytest.raises(ProducerFenced):
            x.add(producer)


def test_an_instance_goes_on_after_an_error(x: Transactions) -> None:
    producer = x.init()
    again = x.init(producer=producer)
    assert again == next_epoch(producer)
    assert x.init(producer=producer) == again  # the answer was lost
    assert x.init(producer=again) == next_epoch(again)


def test_an_instance_that_was_replaced_does_not_go_on(x: Transactions) -> None:
    old = x.init()
    x.init()
    with pytest.raises(ProducerFenced):
        x.init(producer=old)
    with pytest.raises(ProducerFenced):
        x.init(producer=ProducerIdAndEpoch(7, 0))


def test_an_instance_goes_on_from_an_open_transaction(x: Transactions) -> None:
    producer = x.begin()
    ticket = x.start_init(producer=producer)
    x.runner.act_all()
    assert x.runner.answer(ticket) == next_epoch(producer, 2)


def test_an_instance_goes_on_behind_a_commit_whose_answer_it_lost(x: Transactions) -> None:
    producer = x.begin()
    x.end(producer)
    assert x.init(producer=producer) == next_epoch(producer, 2)


def test_an_instance_does_not_go_on_behind_one_that_waits(x: Transactions) -> None:
    producer = x.begin()
    new = x.start_init()
    with pytest.raises(ProducerFenced):
        x.init(producer=producer)
    x.runner.act_all()
    assert x.runner.answer(new) == next_epoch(producer, 2)


def test_an_expired_id_gets_a_new_producer_id(x: Transactions) -> None:
    assert x.init(producer=ProducerIdAndEpoch(7, 3)) == (1000, 0)


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_a_timeout_out_of_bounds_is_refused(x: Transactions, timeout_ms: int) -> None:
    with pytest.raises(InvalidTransactionTimeout, match=str(timeout_ms)):
        x.init(transaction_timeout_ms=timeout_ms)
    assert x.runner.log == []


def test_an_id_needs_a_name(x: Transactions) -> None:
    with pytest.raises(InvalidProducer):
        x.init(transactional_id="")
    with pytest.raises(InvalidMessage):
        x.init(transactional_id="x" * 40_000)


def test_behind_the_last_epoch_is_a_new_producer_id(x: Transactions) -> None:
    last = at_epoch(x, EPOCH_MAX - 1)
    last = x.init(producer=last)
    assert last == (1000, EPOCH_MAX)
    new = x.init(producer=last)
    assert new == (1001, 0)
    assert x.init(producer=last) == new  # the answer was lost
    assert x.init() == (1001, 1)


def test_there_is_always_an_epoch_to_fence_with(x: Transactions) -> None:
    last = at_epoch(x, EPOCH_MAX)
    x.add(last)
    ticket = x.start_init()
    assert x.runner.act().producer == (1000, EPOCH_MAX + 1)
    assert x.runner.answer(ticket) == (1001, 0)


# ---------------------------------------------------------------- begin


def test_empty_to_ongoing_the_first_partition(x: Transactions) -> None:
    producer = x.init()
    x.runner.advance(5)
    x.add(producer, A0)
    assert (x.state, x.info.start_ms, x.info.partitions) == ("Ongoing", x.runner.now_ms, (A0,))


def test_ongoing_to_ongoing_more_partitions(x: Transactions) -> None:
    producer = x.begin(A0)
    x.runner.advance(5)
    x.add(producer, A0, B0)
    assert (x.state, x.info.start_ms, x.info.partitions) == ("Ongoing", x.runner.now_ms - 5, (A0, B0))


def test_what_is_there_already_is_not_written_again(x: Transactions) -> None:
    producer = x.begin(A0, B0)
    count = len(x.runner.log)
    x.add(producer, B0)
    x.runner.call(AddPartitions, transactional_id="x", producer=producer, partitions=())
    assert len(x.runner.log) == count


def test_no_partition_begins_no_transaction(x: Transactions) -> None:
    x.runner.call(AddPartitions, transactional_id="x", producer=x.init(), partitions=())
    assert x.state == "Empty"


@pytest.mark.parametrize("commit", [True, False])
def test_complete_to_ongoing_the_next_transaction(x: Transactions, commit: bool) -> None:
    producer = x.end(x.begin(A0), commit=commit)
    x.add(producer, B0)
    assert (x.state, x.info.partitions) == ("Ongoing", (B0,))


def test_who_is_not_the_instance_begins_nothing(x: Transactions) -> None:
    with pytest.raises(InvalidProducer):
        x.add(ProducerIdAndEpoch(1000, 0))
    producer = x.init()
    for stranger in (ProducerIdAndEpoch(7, 0), next_epoch(producer)):
        with pytest.raises(InvalidProducer):
            x.add(stranger)
    assert x.state == "Empty"


def test_partitions_after_the_first_are_recorded_with_the_decision() -> None:
    x = Transactions(defer_additions=True)
    producer = x.begin(A0)
    recorded = len(x.runner.log)
    x.add(producer, A1)
    x.add(producer, B0)
    assert (len(x.runner.log), x.info.partitions) == (recorded, (A0, A1, B0))
    x.end(producer)
    values = [parse_transaction_value(entry.record.value) for entry in x.runner.log[recorded:]]
    assert [(value.status, len(value.partitions)) for value in values[:3]] == [(1, 2), (1, 3), (2, 3)]


def test_a_crash_that_takes_an_added_partition_aborts_the_whole_transaction() -> None:
    x = Transactions(defer_additions=True)
    producer = x.begin(A0)
    x.add(producer, A1)
    x.runner.reopen()
    assert not x.runner.coordinator.is_open(producer, A1), "its log is told so, and aborts its part"
    marker = x.runner.act()
    assert (marker.partitions, marker.commit) == (frozenset((A0,)), False)
    with pytest.raises(ProducerFenced):
        x.end(producer)


def test_a_refused_append_begins_nothing(x: Transactions) -> None:
    producer = x.init()
    x.runner.refuses = True
    with pytest.raises(DiskFull):
        x.add(producer)
    assert x.state == "Empty"


# ---------------------------------------------------------------- end


def test_ongoing_to_complete_commit_in_steps(x: Transactions) -> None:
    producer = x.begin(A0, B0)
    ticket = x.start_end(producer)
    assert x.state == "Ongoing"  # nothing is decided before the data is synced
    assert x.runner.act() == SyncPartitions("x", producer, frozenset({A0, B0}))
    assert x.state == "PrepareCommit"
    assert x.runner.synced == len(x.runner.log)  # nor a marker written before the decision is
    assert x.runner.act() == WriteMarkers("x", next_epoch(producer), frozenset({A0, B0}), True, 0, producer.producer_epoch)
    assert (x.state, x.info.partitions) == ("CompleteCommit", ())
    assert x.runner.answer(ticket) == next_epoch(producer)
    assert x.runner.actions == []


def test_ongoing_to_complete_abort_in_steps(x: Transactions) -> None:
    producer = x.begin(A0)
    ticket = x.start_end(producer, commit=False)
    assert x.state == "PrepareAbort"  # data that is aborted need not be synced
    assert x.runner.act() == WriteMarkers("x", next_epoch(producer), frozenset({A0}), False, 0, producer.producer_epoch)
    assert x.state == "CompleteAbort"
    assert x.runner.answer(ticket) == next_epoch(producer)


def test_the_epoch_stays_for_clients_that_do_not_learn_it(x: Transactions) -> None:
    producer = x.begin(A0)
    assert x.end(producer, bump_epoch=False) == producer
    assert x.runner.synced == len(x.runner.log)  # or its markers would come again, into the next transaction
    x.add(producer, A0)
    assert x.end(producer, commit=False, bump_epoch=False) == producer
    assert [value.client_version for value in x.recorded()[-4:]] == [0] * 4


def test_each_transaction_has_its_epoch(x: Transactions) -> None:
    producer = x.init()
    for epoch in range(4):
        assert producer.producer_epoch == epoch
        x.add(producer)
        producer = x.end(producer, commit=epoch % 2 == 0)


def test_behind_the_last_epoch_a_transaction_ends_with_a_new_producer_id(x: Transactions) -> None:
    last = at_epoch(x, EPOCH_MAX)
    x.add(last)
    ticket = x.start_end(last)
    x.runner.act()
    value = x.recorded()[-1]
    assert (value.producer_epoch, value.next_producer_id) == (EPOCH_MAX + 1, 1001)
    again = x.start_end(last)
    assert x.runner.act().producer == (1000, EPOCH_MAX + 1)
    assert x.runner.answer(ticket) == x.runner.answer(again) == (1001, 0)
    x.runner.write_deferred()
    value = x.recorded()[-1]
    assert (value.producer_id, value.previous_producer_id, value.next_producer_id) == (1001, 1000, -1)
    assert x.end(last) == (1001, 0)


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("bump", [True, False])
def test_a_lost_answer_is_given_again(x: Transactions, commit: bool, bump: bool) -> None:
    producer = x.begin(A0)
    ended = x.end(producer, commit=commit, bump_epoch=bump)
    count = len(x.runner.log)
    assert x.end(producer, commit=commit, bump_epoch=bump) == ended
    with pytest.raises(InvalidTransactionState):
        x.end(producer, commit=not commit, bump_epoch=bump)
    assert len(x.runner.log) == count


def test_a_lost_answer_is_given_again_after_a_restart(x: Transactions) -> None:
    producer = x.begin(A0)
    ended = x.end(producer)
    x.runner.reopen()
    assert x.end(producer) == ended


@pytest.mark.parametrize("steps", [0, 1])
def test_an_end_that_is_asked_for_twice_is_answered_twice(x: Transactions, steps: int) -> None:
    producer = x.begin()
    tickets = [x.start_end(producer)]
    for _ in range(steps):
        x.runner.act()
    tickets.append(x.start_end(producer))
    with pytest.raises(InvalidTransactionState):
        x.end(producer, commit=False)
    x.runner.act_all()
    assert [x.runner.answer(ticket) for ticket in tickets] == [next_epoch(producer)] * 2


def test_the_end_before_the_last_is_not_repeated(x: Transactions) -> None:
    first = x.begin()
    second = x.end(first)
    x.add(second)
    x.end(second)
    with pytest.raises(ProducerFenced):
        x.end(first)


def test_empty_nothing_is_committed(x: Transactions) -> None:
    producer = x.init()
    for commit in (True, False):
        with pytest.raises(InvalidTransactionState):
            x.end(producer, commit=commit, bump_epoch=False)
    with pytest.raises(InvalidTransactionState):
        x.end(producer)


def test_empty_to_complete_abort_a_transaction_without_a_partition(x: Transactions) -> None:
    producer = x.init()
    again = x.end(producer, commit=False)
    assert (again, x.state) == (next_epoch(producer), "CompleteAbort")
    x.add(again)


def test_complete_to_complete_abort_a_transaction_without_a_partition(x: Transactions) -> None:
    producer = x.end(x.begin(A0))
    assert x.end(producer, commit=False) == next_epoch(producer)
    assert x.recorded()[-2].partitions == frozenset()
    with pytest.raises(InvalidTransactionState):
        x.end(next_epoch(producer))


def test_who_is_not_the_instance_ends_nothing(x: Transactions) -> None:
    producer = x.begin()
    with pytest.raises(InvalidProducer):
        x.end(producer, transactional_id="y")
    for stranger in (ProducerIdAndEpoch(7, 0), next_epoch(producer)):
        with pytest.raises(InvalidProducer):
            x.end(stranger)
    assert x.state == "Ongoing"


@pytest.mark.parametrize("steps", [0, 1])
def test_while_a_transaction_ends_nothing_joins_it(x: Transactions, steps: int) -> None:
    producer = x.begin()
    x.start_end(producer, bump_epoch=False)
    for _ in range(steps):
        x.runner.act()
    for partition in (A0, B0):
        with pytest.raises(ConcurrentTransactions):
            x.add(producer, partition)


def test_prepare_another_end_waits_its_turn(x: Transactions) -> None:
    producer = x.begin()
    x.start_end(producer)
    x.runner.act()
    with pytest.raises(ConcurrentTransactions):
        x.end(next_epoch(producer), commit=False)


def test_a_sync_that_fails_decides_nothing(x: Transactions) -> None:
    producer = x.begin()
    end, init = x.start_end(producer), x.start_init()
    x.runner.act(error=FULL)
    for ticket in (end, init):
        with pytest.raises(DiskFull):
            x.runner.answer(ticket)
    assert x.state == "Ongoing"
    assert x.end(producer) == next_epoch(producer)


def test_a_decision_that_cannot_be_written_is_none(x: Transactions) -> None:
    producer = x.begin()
    ticket = x.start_end(producer)
    x.runner.refuses = True
    x.runner.act()
    with pytest.raises(DiskFull):
        x.runner.answer(ticket)
    with pytest.raises(DiskFull):
        x.end(producer, commit=False)
    assert x.state == "Ongoing"
    x.runner.refuses = False
    assert x.end(producer, commit=False) == next_epoch(producer)


def test_without_a_producer_id_nothing_is_decided(x: Transactions) -> None:
    last = at_epoch(x, EPOCH_MAX)
    x.add(last)
    x.runner.no_ids = True
    ticket = x.start_end(last)
    x.runner.act()
    with pytest.raises(DiskFull):
        x.runner.answer(ticket)
    assert x.state == "Ongoing"
    with pytest.raises(DiskFull):
        x.init(transactional_id="y")
    init = x.start_init()
    x.runner.act()  # the abort is complete, but there is no id for the new instance
    with pytest.raises(DiskFull):
        x.runner.answer(init)
    assert x.state == "CompleteAbort"
    x.runner.no_ids = False
    assert x.init() == (1001, 0)


def test_markers_that_fail_are_tried_again(x: Transactions) -> None:
    producer = x.begin()
    end, init = x.start_end(producer), x.start_init()
    x.runner.act()
    action = x.runner.act(error=FULL)
    for ticket in (end, init):
        with pytest.raises(DiskFull):
            x.runner.answer(ticket)
    assert x.state == "PrepareCommit"
    again = x.start_end(producer)
    x.runner.advance(1_000)
    assert x.runner.act() == action
    assert (x.state, x.runner.answer(again)) == ("CompleteCommit", next_epoch(producer))


def test_a_completion_that_cannot_be_written_is_tried_again(x: Transactions) -> None:
    producer = x.begin()
    ticket = x.start_end(producer, bump_epoch=False)
    x.runner.act()
    x.runner.refuses = True
    x.runner.act()
    with pytest.raises(DiskFull):
        x.runner.answer(ticket)
    x.runner.refuses = False
    x.runner.advance(1_000)
    x.runner.act_all()
    assert x.end(producer, bump_epoch=False) == producer


def test_a_completion_is_written_with_what_follows(x: Transactions) -> None:
    producer = x.end(x.begin())
    assert [value.status for value in x.recorded()] == [0, 1, 2]
    x.add(producer)
    assert [value.status for value in x.recorded()] == [0, 1, 2, 4, 1]


def test_a_completion_is_written_at_once_where_the_next_transaction_has_the_same_epoch(x: Transactions) -> None:
    x.end(x.begin(), bump_epoch=False)
    assert (x.recorded()[-1].status, x.runner.synced) == (4, len(x.runner.log))


def test_an_answer_of_an_action_that_no_request_waits_for_changes_nothing(x: Transactions) -> None:
    producer = x.begin()
    x.start_end(producer)
    sync = x.runner.act()
    x.runner.handle(ActionDone(sync))
    assert x.state == "PrepareCommit"
    markers = x.runner.act()
    x.runner.handle(ActionDone(markers))
    x.runner.handle(ActionFailed(markers, FULL))
    x.runner.handle(ActionDone(markers._replace(transactional_id="y")))
    assert x.state == "CompleteCommit"
    x.runner.write_deferred()
    assert len(x.recorded()) == 4


# ---------------------------------------------------------------- timeouts, administrators


def test_ongoing_to_prepare_abort_by_timeout(x: Transactions) -> None:
    producer = x.begin()
    x.runner.advance(59_999)
    assert x.state == "Ongoing"
    x.runner.advance(1)
    assert x.state == "PrepareAbort"
    x.runner.act_all()
    assert x.state == "CompleteAbort"
    for commit in (True, False):
        with pytest.raises(ProducerFenced):
            x.end(producer, commit=commit)
    assert x.init() == next_epoch(producer, 2)


def test_a_timeout_counts_from_the_first_partition(x: Transactions) -> None:
    producer = x.begin(A0)
    x.runner.advance(59_999)
    x.add(producer, B0)
    x.runner.advance(1)
    assert x.state == "PrepareAbort"


def test_a_transaction_that_ended_has_no_timeout(x: Transactions) -> None:
    producer = x.begin()
    x.runner.advance(59_000)
    x.add(x.end(producer))
    x.runner.advance(59_999)
    assert x.state == "Ongoing"


def test_a_commit_that_was_asked_for_is_not_timed_out(x: Transactions) -> None:
    producer = x.begin()
    ticket = x.start_end(producer)
    x.runner.advance(60_000)
    x.runner.act_all()
    assert (x.state, x.runner.answer(ticket)) == ("CompleteCommit", next_epoch(producer))


def test_a_timeout_comes_again_after_a_sync_that_failed(x: Transactions) -> None:
    x.start_end(x.begin())
    x.runner.advance(60_000)
    x.runner.act(error=FULL)
    x.runner.advance(1_000)
    assert x.state == "PrepareAbort"


def test_a_timeout_that_cannot_be_written_comes_again(x: Transactions) -> None:
    x.begin()
    x.runner.refuses = True
    x.runner.advance(60_000)
    assert x.state == "Ongoing"
    x.runner.refuses = False
    x.runner.advance(1_000)
    assert x.state == "PrepareAbort"


def test_ongoing_to_prepare_abort_by_an_administrator(x: Transactions) -> None:
    producer = x.begin()
    ticket = x.runner.start(AbortTransaction, transactional_id="x")
    assert x.state == "PrepareAbort"
    x.runner.act_all()
    assert x.runner.answer(ticket) is None
    with pytest.raises(ProducerFenced):
        x.end(producer)


def test_there_is_nothing_to_abort(x: Transactions) -> None:
    with pytest.raises(InvalidTransactionState, match="unknown"):
        x.runner.call(AbortTransaction, transactional_id="x")
    producer = x.begin()
    x.start_end(producer)
    for state in ("Ongoing", "PrepareCommit", "CompleteCommit"):
        with pytest.raises(InvalidTransactionState, match=state):
            x.runner.call(AbortTransaction, transactional_id="x")
        if x.runner.actions:
            x.runner.act()


def test_empty_to_dead_an_id_that_began_nothing_expires() -> None:
    x = Transactions(expiration_ms=DAY_MS, sweep_interval_ms=1_000)
    producer = x.init()
    x.runner.advance(DAY_MS - 1_000)
    assert x.state == "Empty"
    x.runner.advance(1_000)
    assert x.runner.coordinator.transactions() == []
    x.runner.reopen()
    with pytest.raises(InvalidProducer):
        x.add(producer)


def test_complete_to_dead_an_id_that_is_not_used_expires() -> None:
    x = Transactions(expiration_ms=7 * DAY_MS)
    producer = x.end(x.begin())
    x.init(transactional_id="open", transaction_timeout_ms=900_000)
    x.runner.advance(7 * DAY_MS - 1_000)
    assert x.state == "CompleteCommit"
    x.add(ProducerIdAndEpoch(1001, 0), transactional_id="open")
    x.runner.advance(3_600_000)
    assert [info.transactional_id for info in x.runner.coordinator.transactions()] == ["open"]
    with pytest.raises(InvalidProducer):
        x.add(producer)
    x.runner.act_all()
    x.runner.reopen()
    assert [info.transactional_id for info in x.runner.coordinator.transactions()] == ["open"]


def test_timers_of_what_is_over_do_nothing(x: Transactions) -> None:
    producer = x.begin()
    x.end(producer)
    count = len(x.runner.log)
    for key in (("transaction", "x"), ("markers", "x"), ("transaction", "y")):
        x.runner.handle(TimerFired(key))
    assert (len(x.runner.log), x.runner.actions) == (count, [])


# ---------------------------------------------------------------- asking


def test_ids_are_described(x: Transactions) -> None:
    producer = x.begin(B0, A0)
    assert x.info == ("x", "Ongoing", producer, 60_000, x.runner.now_ms, (A0, B0))
    assert x.runner.coordinator.transactions() == [x.info]
    with pytest.raises(InvalidProducer):
        x.runner.coordinator.describe("y")


def test_what_is_open_here_is_known(x: Transactions) -> None:
    producer = x.begin(A0)
    is_open = x.runner.coordinator.is_open
    assert is_open(producer, A0)
    assert not is_open(producer, B0)
    assert not is_open(ProducerIdAndEpoch(7, 0), A0)
    assert not is_open(next_epoch(producer), A0)
    x.start_end(producer)
    x.runner.act()
    assert is_open(producer, A0)  # it is decided, and its marker on the way
    x.runner.act()
    assert not is_open(producer, A0)


# ---------------------------------------------------------------- starting again


@pytest.mark.parametrize("commit", [True, False])
def test_a_decided_transaction_is_finished_after_a_restart(x: Transactions, commit: bool) -> None:
    producer = x.begin(A0, B0)
    x.start_end(producer, commit=commit)
    if commit:
        x.runner.act()
    (lost,) = x.runner.actions
    x.runner.reopen()
    assert x.runner.actions == [lost._replace(coordinator_epoch=1)]
    x.runner.act_all()
    assert x.state == ("CompleteCommit" if commit else "CompleteAbort")
    assert x.end(producer, commit=commit) == next_epoch(producer)


def test_an_open_transaction_is_aborted_after_a_restart(x: Transactions) -> None:
    producer = x.begin()
    x.start_end(producer)  # asked for, not decided
    x.runner.reopen()
    assert x.state == "PrepareAbort"
    x.runner.act_all()
    with pytest.raises(ProducerFenced):
        x.end(producer)


def test_an_open_transaction_of_a_server_goes_on_after_a_restart() -> None:
    x = Transactions(abort_on_recovery=False)
    producer = x.begin()
    x.runner.advance(30_000)
    x.runner.reopen()
    assert x.state == "Ongoing"
    x.runner.advance(29_999)
    x.add(producer, B0)
    x.runner.advance(1)
    assert x.state == "PrepareAbort"


@pytest.mark.parametrize("asks_again", [False, True])
def test_after_a_crash_only_who_has_begun_nothing_since_goes_on(asks_again: bool) -> None:
    x = Transactions(abort_on_recovery=False)
    producer = x.begin()
    following = x.end(producer)
    x.runner.crash()
    x.runner.act_all()
    assert x.state == "CompleteCommit"
    if asks_again:  # for the answer to its commit: so it knows of no transaction after it
        assert x.end(producer) == following
        x.add(following)
    else:  # a transaction that it began may be lost, and its records aborted
        with pytest.raises(ProducerFenced):
            x.add(following)


def test_after_a_crash_a_clean_restart_lets_no_producer_go_on_either() -> None:
    x = Transactions()
    following = x.end(x.begin())
    x.runner.crash()
    x.runner.act_all()
    x.runner.write_deferred()
    x.runner.reopen()
    assert x.state == "CompleteCommit"
    with pytest.raises(ProducerFenced):
        x.add(following)
    x.add(x.init())


def test_after_a_crash_no_end_stands_for_that_of_a_lost_transaction_of_the_same_epoch(x: Transactions) -> None:
    producer = x.end(x.begin(), bump_epoch=False)
    x.runner.crash()
    with pytest.raises(ProducerFenced):
        x.end(producer, bump_epoch=False)


def test_after_a_crash_a_decision_of_the_same_epoch_was_followed_by_nothing(x: Transactions) -> None:
    producer = x.begin()
    x.start_end(producer, bump_epoch=False)
    x.runner.act()
    x.runner.crash()
    x.runner.act_all()
    assert x.end(producer, bump_epoch=False) == producer
    x.add(producer)


def test_a_clock_that_jumped_makes_no_timeout_longer() -> None:
    x = Transactions(abort_on_recovery=False)
    x.begin()
    x.runner.now_ms -= DAY_MS
    x.runner.reopen()
    x.runner.advance(60_000)
    assert x.state == "PrepareAbort"


def test_no_epoch_comes_twice_over_power_cuts(x: Transactions) -> None:
    producer = x.begin()
    x.end(producer)
    x.runner.reopen(power_cut=True)  # the completion was not synced: it is made again
    x.runner.act_all()
    assert x.state == "CompleteCommit"
    assert x.init() == next_epoch(producer, 2)


def test_a_record_that_is_none_of_ours_is_passed_over_or_refused(x: Transactions) -> None:
    x.runner.coordinator.apply(b"\0\7zzz", b"", offset=0)
    assert x.runner.coordinator.transactions() == []
    value = TransactionValue(1, -1, -1, 0, 1, 6, frozenset(), 0, 0, 0)
    with pytest.raises(InvalidMessage, match="state 6"):
        x.runner.coordinator.apply(transaction_key("x"), transaction_value(value), offset=0)
