"""hot_send.c, hot_delivery.c: records find their partition, buffers are handed over whole, futures tell what became of them."""

import gc
import random
import sys
import threading
import tracemalloc
import weakref
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from logdb._native._hot import Accumulator, Delivery, Dispatcher, Route, SendFuture
from logdb.client.producer.partitioner import partition_for_key
from logdb.model import RecordMetadata
from support.builders import NOW, Rejected, Row, at_now, decode

SEED = 7


class Parcel(Delivery):
    """A delivery for which no thread waits in vain."""

    reported: list[tuple[object, BaseException]]

    def settle(self, base_offset: int = 0, timestamp_ms: int = -1, error: BaseException | None = None) -> None:
        self.reported = []
        self._settle(base_offset, timestamp_ms, error)
        self._call_back(error, lambda function, raised: self.reported.append((function, raised)))

    def _wait(self, timeout: Any) -> None:
        raise TimeoutError(timeout)

    def _call(self, function: Callable[[SendFuture], object], future: SendFuture) -> None:
        function(future)


class Partition(Accumulator):
    """Hands buffers to its topic; ``capacity``: bytes of one, at least a batch."""

    clock: Callable[[], int] = staticmethod(at_now)

    def __init__(self, topic: "Topic", number: int, capacity: int, **options: Any) -> None:
        super().__init__(next_offset=0, leader_epoch=-1, batch_size=1000, write_size=1000, group_size=1000, clock=self.clock)
        self._configure(**options)
        self.topic, self.number, self.capacity = topic, number, capacity
        self.refills: list[int] = []

    def _refill(self, size_bytes: int) -> None:
        self.refills.append(size_bytes)
        if (sealed := self._seal()) is not None:
            self.topic.sealed.append(sealed)
        self._begin(Parcel("t", self.number, 5, self.topic.acknowledged), max(self.capacity, size_bytes))

    def _reject(self, reason: str, *numbers: int) -> None:
        raise Rejected(reason, *numbers)


class Refused(Exception):
    """The reason of a refusal."""


class Topic(Dispatcher):
    """A producer of one topic ``t``; ``sealed``: deliveries in the order in which their buffers were full."""

    def __init__(
        self,
        partitions: int = 1,
        *,
        capacity: int = 4000,
        acknowledged: bool = True,
        partitioner: Callable[[Any, int], int] | None = None,
        serialize_key: Callable[[Any], Any] | None = None,
        serialize_value: Callable[[Any], Any] | None = None,
        intercepted: bool = False,
        partition: type[Partition] = Partition,
        **options: Any,
    ) -> None:
        super().__init__(
            partitioner=partitioner,
            serialize_key=serialize_key,
            serialize_value=serialize_value,
            intercepted=intercepted,
            sticky_size=1000,
        )
        self.count, self.capacity, self.acknowledged, self.options = partitions, capacity, acknowledged, options
        self.make = partition
        self.sealed: list[Delivery] = []

    def _route(self, topic: str) -> Route:
        if topic != "t":
            raise KeyError(topic)
        return Route(topic, self.count, SEED)

    def _accumulator(self, route: Route, partition: int) -> Accumulator:
        if not 0 <= partition < len(route.accumulators):
            raise IndexError(partition)
        made = route.accumulators[partition] = self.make(self, partition, self.capacity, **self.options)
        return made

    def _refuse(self, reason: int) -> None:
        raise Refused(reason)

    def partition(self, number: int = 0) -> Partition:
        found = self._routes["t"].accumulators[number]
        assert isinstance(found, Partition)
        return found

    def seal(self) -> list[Delivery]:
        """All deliveries so far, in the order of partitions and records."""
        for accumulator in self._routes["t"].accumulators:
            if accumulator is not None and (last := accumulator._seal()) is not None:
                self.sealed.append(last)
        return self.sealed

    def rows(self) -> list[Row]:
        return [row for delivery in self.seal() for batch in decode(bytes(delivery.batches)) for row in batch.rows]


# ---------------------------------------------------------------- records


def test_a_record_is_what_was_sent() -> None:
    topic = Topic()
    topic.send("t", b"value", b"key", headers=[("h", b"1"), ("n", None)], timestamp_ms=123)
    topic.send("t", None, key=bytearray(b"k"))
    topic.send(topic="t", value=memoryview(b"v"), headers=None, timestamp_ms=None, partition=None, on_delivery=None)
    assert topic.rows() == [
        Row(0, 123, b"key", b"value", ((b"h", b"1"), (b"n", None))),
        Row(1, NOW, b"k", None),
        Row(2, NOW, None, b"v"),
    ]
    assert topic.partition().refills == [1000]


def test_buffers_hold_at_most_five_batches_and_all_records_in_order() -> None:
    topic, rng = Topic(capacity=20_000), random.Random(SEED)
    values = [rng.randbytes(rng.choice((0, 10, 300, 600, 999, 5000))) for _ in range(500)]
    futures = [topic.send("t", value) for value in values]
    assert [row.value for row in topic.rows()] == values
    batches = [decode(bytes(delivery.batches)) for delivery in topic.sealed]
    assert max(map(len, batches)) == 5
    assert all(batch.size_bytes <= 1000 or len(batch.rows) == 1 for found in batches for batch in found)
    first = 0
    for delivery, found in zip(topic.sealed, batches, strict=True):
        assert (delivery.first, delivery.record_count) == (first, sum(len(batch.rows) for batch in found))
        assert (delivery.size_bytes, delivery.opened_ms, found[0].base_offset) == (20_000, 5, first)
        first += delivery.record_count
    assert topic.partition()._pending_count == 0
    for delivery in topic.sealed:
        delivery._settle(1000 + delivery.first, -1, None)
    assert [future.result().offset for future in futures] == list(range(1000, 1500))


def test_a_record_larger_than_a_batch_gets_a_buffer_that_holds_it() -> None:
    topic = Topic()
    topic.send("t", b"x" * 10_000)
    assert topic.partition().refills[0] > 10_000
    assert [row.value for row in topic.rows()] == [b"x" * 10_000]


@pytest.mark.parametrize(
    ("arguments", "keywords", "message"),
    [
        ((), {}, "misses argument 'topic'"),
        (("t",), {}, "misses argument 'value'"),
        (("t", b"v", b"k", 0), {}, "takes at most 3 positional"),
        (("t", b"v"), {"nosuch": 1}, "unexpected keyword argument 'nosuch'$"),
        (("t", b"v"), {"timestamp": 1}, r"unexpected keyword argument 'timestamp'\. Did you mean 'timestamp_ms'\?"),
        (("t", b"v"), {"value": b"w"}, "two values for argument 'value'"),
        (("t", "text"), {}, "value must be bytes-like or None, not str: encode it first"),
        (("t", b"v", {}), {}, "key must be bytes-like or None, not dict"),
        (("t", b"v"), {"partition": "0"}, "partition must be an int, not str"),
        (("t", b"v"), {"timestamp_ms": "now"}, "timestamp_ms must be an int, not str"),
        (("t", b"v"), {"headers": [("h", "text")]}, r"headers\[0\] must be a pair"),
        (([], b"v"), {}, "topic must be a str, not list"),
    ],
)
def test_what_is_of_the_wrong_type_is_not_taken(arguments: tuple[Any, ...], keywords: dict[str, Any], message: str) -> None:
    topic = Topic()
    with pytest.raises(TypeError, match=message):
        topic.send(*arguments, **keywords)
    topic.send("t", b"good")
    assert [row.value for row in topic.rows()] == [b"good"]


def test_what_the_topic_does_not_take_is_rejected() -> None:
    topic = Topic(keys_required=True, message_size_max=500, timestamp_before_max_ms=1000)
    for arguments, keywords, reason in (
        (("t", b"v"), {}, "key"),
        (("t", b"v" * 500, b"k"), {}, "size"),
        (("t", b"v", b"k"), {"timestamp_ms": NOW - 1001}, "timestamp"),
        (("t", b"v", b"k"), {"timestamp_ms": -2}, "timestamp"),
    ):
        with pytest.raises(Rejected, match=reason):
            topic.send(*arguments, **keywords)
    assert topic.rows() == []


# ---------------------------------------------------------------- partitions


def test_keys_go_where_the_default_partitioner_sends_them() -> None:
    rng = random.Random(SEED)
    for count in (1, 2, 7):
        topic = Topic(count)
        for number in range(300):
            key = rng.randbytes(number % 20)
            topic.send("t", key, key)
        found = [(delivery.partition, batch.rows) for delivery in topic.seal() for batch in decode(bytes(delivery.batches))]
        rows = [(partition, row.key) for partition, batch in found for row in batch]
        assert len(rows) == 300
        assert all(partition == partition_for_key(key or b"", count) for partition, key in rows)


def test_records_without_a_key_stay_for_a_batch_and_are_spread_evenly() -> None:
    topic = Topic(5)
    for _ in range(10_000):
        topic.send("t", b"x" * 93)
    chosen = [delivery.partition for delivery in topic.sealed]
    assert len(set(chosen)) == 5
    topic.seal()
    counts = Counter[int]()
    for delivery in topic.sealed:
        counts[delivery.partition] += delivery.record_count
    assert sum(counts.values()) == 10_000
    assert all(1500 < count < 2500 for count in counts.values()), counts
    alone = Topic(5)
    for _ in range(10):
        alone.send("t", b"x" * 93)
    assert len({delivery.partition for delivery in alone.seal()}) == 1


def test_a_partition_may_be_named() -> None:
    topic = Topic(3)
    for number in (2, 0, 2, True):
        topic.send("t", b"v", b"k", partition=number)
    assert {delivery.partition: delivery.record_count for delivery in topic.seal()} == {0: 1, 1: 1, 2: 2}
    for bad in (-1, 3, 2**40):
        with pytest.raises(IndexError):
            topic.send("t", b"v", partition=bad)
    with pytest.raises(OverflowError):
        topic.send("t", b"v", partition=2**64)


def test_a_partitioner_is_asked_with_the_serialized_key() -> None:
    asked = []

    def choose(key: Any, count: int) -> int:
        asked.append((key, count))
        return len(asked) % count if len(asked) < 5 else count

    topic = Topic(2, partitioner=choose, serialize_key=lambda key: key and key.encode())
    for key in ("a", None, "b", "c"):
        topic.send("t", b"v", key)
    assert asked == [(b"a", 2), (None, 2), (b"b", 2), (b"c", 2)]
    assert {delivery.partition: delivery.record_count for delivery in topic.seal()} == {0: 2, 1: 2}
    with pytest.raises(IndexError):
        topic.send("t", b"v", "d")
    topic.send("t", b"v", "e", partition=0)
    assert len(asked) == 5


def test_a_route_may_grow() -> None:
    topic = Topic(1)
    topic.send("t", b"v", b"k")
    topic._routes["t"].accumulators.extend([None, None])
    topic.send("t", b"v", partition=2)
    assert {delivery.partition for delivery in topic.seal()} == {0, 2}


def test_hooks_that_return_something_else_are_caught() -> None:
    class Wrong(Topic):
        def _route(self, topic: str) -> Route:
            return None if topic == "none" else super()._route("t")  # type: ignore[return-value]

        def _accumulator(self, route: Route, partition: int) -> Accumulator:
            return object()  # type: ignore[return-value]

    with pytest.raises(TypeError, match="_route\\(\\) must return a Route, not NoneType"):
        Wrong().send("none", b"v")
    with pytest.raises(TypeError, match="_accumulator\\(\\) must return an Accumulator, not object"):
        Wrong().send("t", b"v")


def test_a_topic_has_one_route_for_all_threads() -> None:
    class Slow(Topic):
        overtaken = False

        def _route(self, topic: str) -> Route:
            if not self.overtaken:
                self.overtaken = True
                self.send("t", b"first", partition=0)  # as another thread might
            return super()._route(topic)

    topic = Slow()
    topic.send("t", b"second", partition=0)
    assert [row.value for row in topic.rows()] == [b"first", b"second"]


def test_an_unknown_topic_is_what_its_hook_says() -> None:
    topic = Topic()
    for _ in range(2):
        with pytest.raises(KeyError, match="nosuch"):
            topic.send("nosuch", b"v")
    assert not topic._routes


# ---------------------------------------------------------------- serializers, interceptors, refusals


def test_serializers_are_called_with_what_was_given() -> None:
    topic = Topic(serialize_value=str.encode, serialize_key=lambda key: None if key is None else b"%d" % key)
    topic.send("t", "ä", 7)
    topic.send("t", "b")
    assert [(row.key, row.value) for row in topic.rows()] == [(b"7", "ä".encode()), (None, b"b")]
    with pytest.raises(TypeError, match="descriptor 'encode'"):
        topic.send("t", b"already")


def test_interceptors_get_the_call_as_it_was_made() -> None:
    calls = []

    class Intercepted(Topic):
        def _intercept(self, *args: Any, **keywords: Any) -> SendFuture:
            calls.append((args, keywords))
            return self._dispatch("t", b"other")

    topic = Intercepted(intercepted=True)
    assert not topic.send("anything", 1, partition=4, nosuch=2).done()  # type: ignore[call-arg]
    assert calls == [(("anything", 1), {"partition": 4, "nosuch": 2})]
    assert [row.value for row in topic.rows()] == [b"other"]


def test_the_gate_refuses_everything() -> None:
    topic = Topic()
    topic.send("t", b"in")
    topic._refusing = 3
    with pytest.raises(Refused, match="3"):
        topic.send("t", b"out")
    topic._refusing = 0
    topic.send("t", b"in again")
    assert [row.value for row in topic.rows()] == [b"in", b"in again"]


@pytest.mark.parametrize("where", ["serializer", "clock", "refill", "headers"])
def test_a_gate_that_shuts_while_python_runs_refuses_that_record(where: str) -> None:
    def pass_by(here: str) -> int:
        if here == where:
            topic._refusing = 1
        return NOW

    class Late(Partition):
        clock = staticmethod(lambda: pass_by("clock"))

        def _refill(self, size_bytes: int) -> None:
            super()._refill(size_bytes)
            pass_by("refill")

    def headers() -> Any:
        pass_by("headers")
        yield ("h", b"")

    topic = Topic(partition=Late, serialize_value=lambda value: (pass_by("serializer"), value)[1])
    with pytest.raises(Refused):
        topic.send("t", b"v", headers=headers())
    assert topic.rows() == []


def test_a_refuse_that_does_not_raise_is_a_bug_that_is_told() -> None:
    class Silent(Topic):
        def _refuse(self, reason: int) -> None:
            pass

    topic = Silent()
    topic._refusing = 1
    with pytest.raises(SystemError, match="_refuse\\(\\) did not raise"):
        topic.send("t", b"v")


def test_a_refill_that_makes_no_room_is_a_bug_that_is_told() -> None:
    topic = Topic()
    topic.send("t", b"v")
    topic.partition()._refill = lambda size_bytes: None  # type: ignore[method-assign]
    topic.seal()
    with pytest.raises(SystemError, match="_refill\\(\\) makes no room"):
        topic.send("t", b"v")


def test_begin_and_seal_are_checked() -> None:
    topic = Topic()
    topic.send("t", b"v")
    partition = topic.partition()
    with pytest.raises(RuntimeError, match="a buffer is open"):
        partition._begin(Parcel("t", 0, 0, True), 100)
    sealed = partition._seal()
    assert sealed is not None and partition._open is None and partition._seal() is None
    with pytest.raises(RuntimeError, match="not a new delivery"):
        partition._begin(sealed, 100)
    with pytest.raises(RuntimeError, match="not a new delivery"):
        partition._begin(Parcel("t", 0, 0, True), 0)
    partition._begin(Parcel("t", 0, 0, True), 1000)
    empty = partition._seal()
    assert empty is not None and empty.record_count == 0 and bytes(empty.batches) == b""


def test_what_a_batch_builder_can_do_by_itself_breaks_nothing() -> None:
    topic = Topic()
    topic.send("t", b"in")
    partition = topic.partition()
    with pytest.raises(NotImplementedError):
        partition._drain()
    assert partition._seal() is None
    partition._discard()
    topic.send("t", b"another")
    assert [row.value for row in topic.rows()] == [b"another"]
    partition._dirty = True
    partition.append(b"beside")
    with pytest.raises(RuntimeError, match="a buffer is open"):
        topic.send("t", b"v")
    assert partition._seal() is None


def test_constructors_are_checked() -> None:
    with pytest.raises(ValueError, match="partition_count=0"):
        Route("t", 0, 1)
    unmade = Delivery.__new__(Delivery)
    with pytest.raises(RuntimeError, match="__init__ was not called"):
        unmade._future(0)
    topic = Topic()
    topic.send("t", b"v")
    topic.seal()
    with pytest.raises(RuntimeError, match="not a new delivery"):
        topic.partition()._begin(unmade, 100)
    topic._routes["t"].accumulators.clear()
    with pytest.raises(SystemError, match="emptied"):
        topic.send("t", b"v")
    with pytest.raises(TypeError):
        Delivery("t", "0", 0, True)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        Route(b"t", 1, 1)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="cannot create"):
        SendFuture()
    with pytest.raises(RuntimeError, match="__init__ was not called"):
        Dispatcher.__new__(Dispatcher).send("t", b"v")


# ---------------------------------------------------------------- futures


def test_a_future_has_no_result_until_its_delivery_is_settled() -> None:
    topic = Topic()
    future = topic.send("t", b"v", timestamp_ms=5)
    assert not future.done() and repr(future) == "<SendFuture t-0 pending>"
    for call in (future.result, future.exception):
        with pytest.raises(TimeoutError, match=r"0\.5"):
            call(0.5)
        with pytest.raises(TimeoutError, match="None"):
            call()
        with pytest.raises(TimeoutError, match="3"):
            call(timeout=3)
    with pytest.raises(TypeError, match="unexpected keyword"):
        future.result(timeout_ms=3)  # type: ignore[call-arg]
    delivery = topic.seal()[0]
    delivery._settle(40, -1, None)
    metadata = future.result(0)
    assert type(metadata) is RecordMetadata and metadata == RecordMetadata("t", 0, 40, 5) and metadata.timestamp_ms == 5
    assert hash(metadata) == hash(RecordMetadata("t", 0, 40, 5))
    assert future.done() and future.exception() is None and repr(future) == "<SendFuture t-0 offset 40>"
    delivery._settle(50, 7, KeyError("late"))
    assert future.result() == metadata, "the first result stays"


def test_a_log_that_stamps_records_tells_its_time() -> None:
    topic = Topic()
    futures = [topic.send("t", b"v", timestamp_ms=5) for _ in range(3)]
    topic.seal()[0]._settle(2**40, 99, None)
    assert [future.result() for future in futures] == [RecordMetadata("t", 0, 2**40 + number, 99) for number in range(3)]


def test_a_batch_that_failed_fails_all_its_futures_and_no_others() -> None:
    topic = Topic(capacity=1000)
    futures = [topic.send("t", b"x" * 400) for _ in range(4)]
    first, second = topic.seal()
    error = ValueError("disk on fire")
    first._settle(-1, -1, error)
    second._settle(7, -1, None)
    for _ in range(3):
        with pytest.raises(ValueError, match="disk on fire") as caught:
            futures[1].result()
        assert caught.value is error and len(caught.traceback) <= 2, "a traceback that does not grow"
    assert futures[0].exception() is error and repr(futures[0]) == "<SendFuture t-0 failed: disk on fire>"
    assert futures[2].result().offset == 7
    with pytest.raises(TypeError, match="error must be an exception"):
        Parcel("t", 0, 0, True)._settle(0, 0, "text")  # type: ignore[arg-type]


def test_without_acknowledgement_the_result_is_there_at_once() -> None:
    topic = Topic(acknowledged=False)
    told: list[Any] = []
    future = topic.send("t", b"v", timestamp_ms=5, on_delivery=lambda error, metadata: told.append((error, metadata)))
    assert future.done() and future.result() == RecordMetadata("t", 0, -1, 5) and future.exception() is None
    delivery = topic.seal()[0]
    assert isinstance(delivery, Parcel)
    delivery.settle(3)
    assert future.result().offset == -1 and told == [(None, RecordMetadata("t", 0, -1, 5))]


def test_batches_are_there_between_sealing_and_settling() -> None:
    topic = Topic()
    topic.send("t", b"v")
    delivery = topic.partition()._open
    assert delivery is not None
    with pytest.raises(ValueError, match="open yet, or settled"):
        _ = delivery.batches
    topic.seal()
    delivery.batches[43:51] = bytes(8)  # stamped in place
    view = delivery.batches
    assert bytes(view[43:51]) == bytes(8)
    delivery._settle(0, -1, None)
    with pytest.raises(ValueError, match="open yet, or settled"):
        _ = delivery.batches
    assert len(view) > 60, "a view that was kept shows bytes, old or new, but never wild ones"


# ---------------------------------------------------------------- callbacks


def test_callbacks_are_called_once_in_order_and_what_they_raise_is_reported() -> None:
    topic, called = Topic(), []

    def fails(*_: object) -> None:
        raise ZeroDivisionError

    futures = [
        topic.send("t", b"v", timestamp_ms=1, on_delivery=lambda error, metadata, number=number: called.append((number, error, metadata)))
        for number in range(3)
    ]
    futures.append(topic.send("t", b"v", on_delivery=fails))
    futures[2].add_done_callback(called.append)
    futures[0].add_done_callback(fails)
    futures[0].add_done_callback(called.append)
    delivery = topic.seal()[0]
    assert isinstance(delivery, Parcel) and not called
    delivery.settle(10)
    assert called == [(number, None, RecordMetadata("t", 0, 10 + number, 1)) for number in range(3)] + [futures[2], futures[0]]
    assert [(function, type(error)) for function, error in delivery.reported] == [(fails, ZeroDivisionError)] * 2
    delivery._call_back(None, fails)
    assert len(called) == 5
    futures[1].add_done_callback(called.append)  # too late: at once
    assert called[-1] is futures[1]


def test_callbacks_of_what_failed() -> None:
    topic, called = Topic(), []
    future = topic.send("t", b"v", on_delivery=lambda *arguments: called.append(arguments))
    future.add_done_callback(lambda future: called.append(future.exception()))
    delivery = topic.seal()[0]
    assert isinstance(delivery, Parcel)
    error = OSError(5)
    delivery.settle(-1, -1, error)
    assert called == [(error, None), error]


def test_a_report_that_fails_is_raised() -> None:
    topic = Topic()
    topic.send("t", b"v", on_delivery=lambda error: None)
    delivery = topic.seal()[0]
    delivery._settle(0, -1, None)
    with pytest.raises(ZeroDivisionError):
        delivery._call_back(None, lambda function, error: 1 // 0)


def test_a_callback_may_add_another_and_send_more() -> None:
    topic, called = Topic(), []
    future = topic.send("t", b"v")

    def again(done: SendFuture) -> None:
        called.append("first")
        done.add_done_callback(lambda _: called.append("second"))
        topic.send("t", b"w")

    future.add_done_callback(again)
    delivery = topic.seal()[0]
    assert isinstance(delivery, Parcel)
    delivery.settle()
    assert called == ["first", "second"] and topic.partition()._pending_count == 1


# ---------------------------------------------------------------- threads, memory


def test_threads_that_send_at_once_lose_nothing() -> None:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    lock = threading.Lock()

    class Locked(Partition):
        def _refill(self, size_bytes: int) -> None:
            with lock:
                super()._refill(size_bytes)

    class Single(Topic):
        def _accumulator(self, route: Route, partition: int) -> Accumulator:
            with lock:
                return route.accumulators[partition] or super()._accumulator(route, partition)

    topic = Single(partition=Locked)
    futures: dict[int, list[SendFuture]] = {}

    def send(name: int) -> None:
        futures[name] = [topic.send("t", b"%d %d" % (name, number), on_delivery=lambda *_: None) for number in range(3000)]

    try:
        threads = [threading.Thread(target=send, args=(name,)) for name in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    values = {row.offset: row.value for row in topic.rows()}
    assert sorted(values) == list(range(12_000))
    for delivery in topic.sealed:
        delivery._settle(delivery.first, -1, None)
    for name, mine in futures.items():
        offsets = [future.result().offset for future in mine]
        assert offsets == sorted(offsets)
        assert [values[offset] for offset in offsets] == [b"%d %d" % (name, number) for number in range(3000)]


def test_nothing_leaks() -> None:
    def work() -> None:
        topic = Topic(3, serialize_value=lambda value: value)
        futures = [topic.send("t", b"v" * 50, b"%d" % number, headers=[("h", b"")], on_delivery=lambda *_: None) for number in range(300)]
        futures[0].add_done_callback(lambda future: None)
        for number, delivery in enumerate(topic.seal()):
            assert isinstance(delivery, Parcel)
            delivery.settle(number, -1, ValueError(number) if number % 2 else None)
        for future in futures:
            if future.exception() is None:
                future.result()
        for bad in ("", b"x" * 2_000_000):
            with pytest.raises((TypeError, KeyError)):
                topic.send("t", bad, headers=[("h", "")]) if bad else topic.send("nosuch", b"")
        topic.send("t", b"open", on_delivery=lambda *_: None)

    work()
    gc.collect()
    tracemalloc.start()
    try:
        work()
        gc.collect()
        first = tracemalloc.get_traced_memory()[0]
        for _ in range(200):
            work()
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] - first < 100_000  # the pool of buffers is part of it
    finally:
        tracemalloc.stop()


def test_references_are_counted() -> None:
    topic, value, key, function, bare = Topic(), b"v" * 1000, bytearray(b"k"), lambda *_: None, object()
    ours = sys.getrefcount(bare)  # and the argument, which Python 3.14 borrows
    before = sys.getrefcount(value), sys.getrefcount(key), sys.getrefcount(function)
    future = topic.send("t", value, key, on_delivery=function)
    assert (sys.getrefcount(value), sys.getrefcount(key), sys.getrefcount(function)) == (*before[:2], before[2] + 1)
    key += b"x"  # nor is it exported
    assert sys.getrefcount(future) == ours + 1, "ours and the callback's"
    topic.seal()[0]._call_back(None, print)
    assert (sys.getrefcount(function), sys.getrefcount(future)) == (before[2], ours)


def test_what_refers_to_itself_is_collected() -> None:
    topic = Topic(partitioner=lambda key, count: 0)
    topic.itself = topic  # type: ignore[attr-defined]
    topic.send("t", b"v", on_delivery=topic.send)
    alive = [weakref.ref(topic), weakref.ref(topic.partition())]
    topic.seal()[0]._call_back(ValueError(), print)
    del topic
    gc.collect()
    assert [ref() for ref in alive] == [None, None]
