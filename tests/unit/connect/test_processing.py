import pytest

from logdb import Record
from logdb_connect import (
    ConfigError,
    ConnectError,
    DataError,
    Header,
    Predicate,
    RetriableError,
    SinkRecord,
    SourceBatch,
    SourceRecord,
    Transform,
)
from logdb_connect.converters.json import JsonConverter
from logdb_connect.converters.primitive import StringConverter
from logdb_connect.data import STRING
from logdb_connect.processing import ErrorHandler, ErrorSettings, SinkChain, SourceChain, Step, steps_of


class Clock:
    def __init__(self, stops=()):
        self.now_ms, self.waits, self.stops = 0, [], list(stops)

    def wait(self, seconds):
        self.waits.append(seconds)
        self.now_ms += int(seconds * 1000)
        return self.stops.pop(0) if self.stops else False


class Apply(Transform):
    def __init__(self, function):
        self.apply = function


class Test(Predicate):
    __test__ = False

    def __init__(self, function):
        self.test = function


def handler(clock=None, letters=None, **settings):
    clock = clock or Clock()
    made = ErrorHandler(
        ErrorSettings(**settings), connector="c", task=3, clock_ms=lambda: clock.now_ms, wait=clock.wait, chance=lambda: 0.5
    )
    made.send_letter = None if letters is None else letters.append
    return made


def chain(kind, handled=None, steps=()):
    parts = [StringConverter(), JsonConverter(), StringConverter()]
    for part in parts:
        part.configure(part.config_def.parse({}))
    return kind(*parts, steps, handled or handler())


def source_record(value="v", **parts):
    given = {"source_partition": {}, "source_offset": {}, "topic": "t", "value": value, "value_schema": STRING, **parts}
    return SourceRecord(**given)


def json_of(text):
    return b'{"schema":{"type":"string","optional":false},"payload":"%b"}' % text.encode()


def test_a_batch_is_as_its_records():
    batch = SourceBatch(source_partition={}, offset={}, topic="t", values=["a", "b"], value_schema=STRING, keys=["k", None], timestamp_ms=5)
    rows = chain(SourceChain).rows(batch)
    assert rows == [("t", json_of("a"), b"k", None, (), 5), ("t", json_of("b"), None, None, (), 5)]
    assert chain(SourceChain).rows(list(batch)) == rows
    assert chain(SourceChain, steps=[Step(Apply(lambda record: record))]).rows(batch) == rows


def test_transforms_route_filter_and_keep_the_order():
    def route(record):
        return None if record.value == "drop" else record.replace(topic="u", headers=[Header("h", "x")])

    steps = [Step(Apply(route), Test(lambda record: record.value.startswith("keep")), negated=True)]
    rows = chain(SourceChain, steps=steps).rows([source_record(text) for text in ("keep", "drop", "a", "keep b")])
    assert [(row[0], row[1], row[4]) for row in rows] == [
        ("t", json_of("keep"), ()),
        ("u", json_of("a"), [("h", b"x")]),
        ("t", json_of("keep b"), ()),
    ]


@pytest.mark.parametrize("steps", [(), [Step(Apply(lambda record: record))]])
def test_a_record_that_fails_is_skipped_where_all_errors_are_tolerated(steps, caplog):
    batch = SourceBatch(source_partition={}, offset={}, topic="t", values=["a", 1, "b"], value_schema=STRING)
    with pytest.raises(ConnectError, match="VALUE_CONVERTER") as raised:
        chain(SourceChain, steps=steps).rows(batch)
    assert isinstance(raised.value.__cause__, DataError)
    tolerant = handler(tolerates_all=True, logs=True)
    assert [row[1] for row in chain(SourceChain, tolerant, steps).rows(batch)] == [json_of("a"), json_of("b")]
    assert (tolerant.failures, tolerant.skipped, tolerant.logged) == (1, 1, 1)
    assert "Error encountered in task c-3. Executing stage 'VALUE_CONVERTER' with class" in caplog.text


def test_retries_wait_longer_each_time_until_the_deadline():
    clock, calls = Clock(), []

    def flaky(record):
        calls.append(clock.now_ms)
        raise RetriableError("not now")

    steps = [Step(Apply(flaky))]
    with pytest.raises(ConnectError, match="not now"):
        chain(SourceChain, handler(clock, retry_timeout_ms=2_000, retry_delay_ms_max=1_000), steps).rows([source_record()])
    assert calls == [0, 300, 900, 1_400, 1_900, 2_000]
    clock = Clock(stops=[False, True])
    with pytest.raises(ConnectError, match="not now"):
        chain(SourceChain, handler(clock, retry_timeout_ms=-1), steps).rows([source_record()])
    assert len(clock.waits) == 2

    def recovers(record):
        if clock.now_ms < 300:
            raise RetriableError("not now")
        return record

    clock = Clock()
    assert len(chain(SourceChain, handler(clock, retry_timeout_ms=1_000), [Step(Apply(recovers))]).rows([source_record()])) == 1


def test_a_sink_gets_columns_and_the_queue_what_fails():
    letters = []
    handled = handler(letters=letters, tolerates_all=True, queue="dead", queue_has_context=True)
    raw = [
        Record(json_of("a"), b"k", offset=7, timestamp_ms=5, headers=[("h", b"x")]),
        Record(b"{", offset=8, timestamp_ms=-1),
        Record(json_of("b"), offset=9, headers=[("own", b"1")]),
    ]

    def refuse(record):
        if record.value == "b":
            raise ValueError("no b")
        return record.replace(topic="other")

    plain = chain(SinkChain, handled).columns("t", 2, raw)
    assert (plain["offsets"], plain["values"], plain["keys"]) == ([7, 9], ["a", "b"], ["k", None])
    assert plain["value_schemas"] == [STRING, STRING]
    assert plain["timestamps_ms"][0] == 5
    letters.clear()
    changed = chain(SinkChain, handled, [Step(Apply(refuse))]).columns("t", 2, raw)
    assert (changed["topics"], changed["offsets"], changed["originals"]) == (["other"], [7], [("t", 2)])
    assert letters[0][:3] + letters[0][5:] == ("dead", b"{", None, None)
    context = dict(letters[1][4])
    assert context.pop("__connect.errors.exception.stacktrace").startswith(b"Traceback")
    assert context.pop("__connect.errors.class.name").endswith(b"Apply")
    assert context == {
        "own": b"1",
        "__connect.errors.topic": b"t",
        "__connect.errors.partition": b"2",
        "__connect.errors.offset": b"9",
        "__connect.errors.connector.name": b"c",
        "__connect.errors.task.id": b"3",
        "__connect.errors.stage": b"TRANSFORMATION",
        "__connect.errors.exception.class.name": b"builtins.ValueError",
        "__connect.errors.exception.message": b"no b",
    }
    assert dict(letters[0][4])["__connect.errors.exception.class.name"] == b"org.apache.kafka.connect.errors.DataException"


def test_transforms_of_a_source_see_a_missing_timestamp_as_none():
    """A mirror writes -1: the copy has none either."""
    seen = []

    def noted(record):
        seen.append(record.timestamp_ms)
        return None if record.value == "drop" else record.replace(topic="u")

    records = [source_record(timestamp_ms=time) for time in (-1, -2, None, 5)]
    steps = [Step(Apply(noted), Test(lambda record: seen.append(record.timestamp_ms) or True))]
    rows = chain(SourceChain, steps=steps).rows([*records, source_record("drop", timestamp_ms=-1)])
    assert seen == [None, None, -2, -2, None, None, 5, 5, None, None]
    assert [row[-1] for row in rows] == [-1, -2, None, 5]
    [row] = chain(SourceChain, steps=[Step(Apply(lambda record: record.replace(timestamp_ms=7)))]).rows(records[:1])
    assert row[-1] == 7


def test_only_minus_one_is_no_timestamp_for_a_sink():
    letters, times = [], [-1, -2, 0, -62_135_596_800_001, -(2**63), 2**63 - 1]
    handled = handler(letters=letters, tolerates_all=True, queue="dead")
    good = [Record(json_of("a"), offset=number, timestamp_ms=at) for number, at in enumerate(times)]
    bad = [Record(b"{", offset=number, timestamp_ms=at) for number, at in enumerate(times)]
    assert chain(SinkChain, handled).columns("t", 2, good)["timestamps_ms"] == [None, *times[1:]]
    chain(SinkChain, handled).columns("t", 2, bad)
    assert [letter[5] for letter in letters] == [None, *times[1:]]


class Pairs(StringConverter):
    """A plugin's own, which gives a pair for each record."""

    def to_connect_many(self, topic, data):
        return [self.to_connect(topic, each) for each in data]


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_converter_that_does_not_give_two_columns_is_asked_record_by_record(count):
    converter = Pairs()
    converter.configure(converter.config_def.parse({}))
    records = [Record(b"v%d" % offset, b"k%d" % offset, offset=offset) for offset in range(count)]
    columns = SinkChain(converter, converter, converter, (), handler()).columns("t", 0, records)
    assert (columns["keys"], columns["values"]) == ([f"k{one}" for one in range(count)], [f"v{one}" for one in range(count)])


def test_the_letter_goes_out_before_the_task_fails():
    letters = []
    with pytest.raises(ConnectError):
        chain(SinkChain, handler(letters=letters, queue="dead")).columns("t", 0, [Record(b"{")])
    assert [(one[0], one[1], one[4]) for one in letters] == [("dead", b"{", [])]


def test_a_sink_reports_a_record_by_its_bytes():
    letters = []
    used = chain(SinkChain, handler(letters=letters, tolerates_all=True, queue="dead"))
    spaced = b'{"schema":{"type":"string","optional":false}, "payload":"a"}'
    used.columns("t", 0, [Record(spaced, b"k", offset=4)])
    record = SinkRecord(topic="t", partition=0, offset=4, original_topic="t", original_partition=0, value="a", value_schema=STRING, key="k")
    used.report(record, ValueError("full"))
    used.columns("t", 0, [Record(spaced, offset=5)])
    used.report(record, ValueError("full"))
    assert [one[1:3] for one in letters] == [(spaced, b"k"), (json_of("a"), b"k")]


def test_steps_of_properties():
    made = []
    config = {
        "transforms": "a, b",
        "transforms.a.type": "A",
        "transforms.a.predicate": "p",
        "transforms.a.negate": "true",
        "transforms.b.type": "B",
        "predicates": "p",
        "predicates.p.type": "P",
    }

    def make(prefix, kind):
        made.append((prefix, kind))
        return config[prefix + "type"]

    assert steps_of(config, make) == [("A", "P", True), ("B", None, False)]
    assert made == [("predicates.p.", "predicate"), ("transforms.a.", "transformation"), ("transforms.b.", "transformation")]
    with pytest.raises(ConfigError, match="predicates=p"):
        steps_of({**config, "transforms.a.predicate": "q"}, make)
    with pytest.raises(ConfigError, match=r"no config 'transforms\.b\.predicate'"):
        steps_of({**config, "transforms.b.negate": "true"}, make)
