"""The catalogue against dicts, with failing transactions and reopening as rules."""

import shutil
import tempfile
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from logdb.meta import Catalogue, Intent, LogEntry, SegmentEntry, TopicEntry, WriteTransaction
from logdb.meta.dump import read_in_child

names = st.sampled_from(["a", "a.b", "a-0", "b", "B"])
numbers = st.integers(0, 3)
offsets = st.integers(0, 2**63 - 1)


class Undone(Exception):
    """What a function raises to undo its transaction."""


class CatalogueModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.directory = tempfile.mkdtemp(prefix="logdb-test-")
        self.topics: dict[str, TopicEntry] = {}
        self.logs: dict[tuple[str, int], LogEntry] = {}
        self.segments: dict[tuple[str, int, int], SegmentEntry] = {}
        self.intents: dict[int, Intent] = {}

    @property
    def path(self) -> str:
        return self.directory + "/catalogue"

    @initialize()
    def create(self) -> None:
        self.catalogue = Catalogue.open(self.path, create=True, map_size_bytes=1 << 16)
        self.reader = Catalogue.open(self.path, create=False, read_only=True)

    @rule(name=names, partition_count=st.integers(1, 4), config=st.dictionaries(st.text(max_size=5), offsets, max_size=2))
    def put_topic(self, name: str, partition_count: int, config: dict[str, Any]) -> None:
        entry = TopicEntry(name, "id", partition_count, config)
        logs = [LogEntry(name, partition) for partition in range(partition_count)]
        self.catalogue.write(lambda txn: (txn.put_topic(entry), txn.put_logs(logs)))
        self.topics[name] = entry
        self.logs |= {(name, log.partition): log for log in logs}

    @rule(name=names)
    def delete_topic(self, name: str) -> None:
        assert self.catalogue.write(lambda txn: txn.delete_topic(name)) == (name in self.topics)
        self.topics.pop(name, None)
        self.logs = {key: log for key, log in self.logs.items() if key[0] != name}
        self.segments = {key: segment for key, segment in self.segments.items() if key[0] != name}

    @precondition(lambda self: self.logs)
    @rule(data=st.data(), offset=offsets, strict=st.booleans(), reason=st.none() | st.text(max_size=200))
    def put_log(self, data: st.DataObject, offset: int, strict: bool, reason: str | None) -> None:
        key = data.draw(st.sampled_from(sorted(self.logs)))
        entry = self.logs[key]._replace(
            generation=self.logs[key].generation + 1, recovery_offset=offset, strict=strict, read_only_reason=reason
        )
        self.catalogue.write(lambda txn: txn.put_log(entry))
        self.logs[key] = entry

    @precondition(lambda self: self.logs)
    @rule(data=st.data(), base_offset=offsets, size_bytes=numbers)
    def put_segment(self, data: st.DataObject, base_offset: int, size_bytes: int) -> None:
        topic, partition = data.draw(st.sampled_from(sorted(self.logs)))
        entry = SegmentEntry(topic, partition, base_offset, size_bytes, 0xFFFFFFFF, base_offset, -1, 0)
        self.catalogue.write(lambda txn: txn.put_segment(entry))
        self.segments[topic, partition, base_offset] = entry

    @precondition(lambda self: self.segments)
    @rule(data=st.data())
    def delete_segment(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.segments)))
        assert self.catalogue.write(lambda txn: txn.delete_segment(*key))
        del self.segments[key]

    @rule(name=names, body=st.dictionaries(st.text(max_size=5), numbers, max_size=2))
    def add_intent(self, name: str, body: dict[str, Any]) -> None:
        intent = Intent("create", name, body)
        intent_id = self.catalogue.write(lambda txn: txn.add_intent(intent))
        assert intent_id > max(self.intents, default=0)
        self.intents[intent_id] = intent

    @precondition(lambda self: self.intents)
    @rule(data=st.data())
    def clear_intent(self, data: st.DataObject) -> None:
        intent_id = data.draw(st.sampled_from(sorted(self.intents)))
        assert self.catalogue.write(lambda txn: txn.clear_intent(intent_id))
        del self.intents[intent_id]

    @rule(count=st.sampled_from([1, 2_000]))
    def undo(self, count: int) -> None:
        def fail(txn: WriteTransaction) -> None:
            for name in list(txn.topics()):
                txn.delete_topic(name)
            txn.put_topic(TopicEntry("new", "id", count, {}))
            txn.put_logs(LogEntry("new", partition) for partition in range(count))
            raise Undone

        try:
            self.catalogue.write(fail)
        except Undone:
            return
        raise AssertionError

    @rule(reader_too=st.booleans())
    def reopen(self, reader_too: bool) -> None:
        self.catalogue.close()
        if reader_too:
            self.reader.close()
        self.catalogue = Catalogue.open(self.path, create=False)
        if reader_too:
            self.reader = Catalogue.open(self.path, create=False, read_only=True)

    @invariant()
    def agrees(self) -> None:
        for handle in (self.catalogue, self.reader):
            assert list(handle.topics().items()) == sorted(self.topics.items())
            assert handle.logs() == [self.logs[key] for key in sorted(self.logs)]
            assert handle.intents() == sorted(self.intents.items())
        for topic, partition in self.logs:
            expected = [self.segments[key] for key in sorted(self.segments) if key[:2] == (topic, partition)]
            assert self.catalogue.view(topic, partition) == (self.logs[topic, partition], expected)

    def teardown(self) -> None:
        self.catalogue.close()
        self.reader.close()
        dump = read_in_child(self.path)
        assert dump.topics == self.topics
        assert dump.intents == sorted(self.intents.items())
        assert {(segment.topic, segment.partition, segment.base_offset): segment for segment in dump.segments} == self.segments
        shutil.rmtree(self.directory)


TestCatalogueModel = CatalogueModel.TestCase
TestCatalogueModel.settings = settings(max_examples=settings().max_examples // 3, stateful_step_count=30)
