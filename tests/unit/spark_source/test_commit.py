"""Commits on a path and on a URL, and everything that may come between their steps."""

import os

import pytest

from logdb.errors import CorruptionError, LogdbError, ProducerFenced, ServerUnavailable, UnknownPartition, UnknownTopic
from logdb.model import OffsetAndMetadata, TopicPartition
from logdb_spark_source import staging
from logdb_spark_source.commit import CommitForgotten, commit, committed_batch
from logdb_spark_source.staging import StagedFileMissing
from support.places import opened
from support.staged import rows, staged, values


@pytest.fixture
def database(place, tmp_path):
    with opened(place, tmp_path / "db") as database:
        database.create_topic("t", partitions=2)
        yield database


def task(database, tmp_path, *numbers):
    """A task that staged these; each is its own key."""
    return staged(database, tmp_path / "staging", rows(*((b"%d" % number, b"%d" % number) for number in numbers)))


def found(database):
    return sorted(int(value) for partition in (0, 1) for value in values(database, partition=partition))


def test_batches_follow_each_other(database, tmp_path):
    session = database._session
    assert committed_batch(session, "q") == -1
    for batch_id in range(3):
        first = 10 * batch_id
        files = [task(database, tmp_path, first, first + 1), task(database, tmp_path), task(database, tmp_path, first + 2)]
        assert commit(session, "q", batch_id, files)
        assert committed_batch(session, "q") == batch_id
    assert found(database) == [0, 1, 2, 10, 11, 12, 20, 21, 22]


def test_a_batch_that_was_committed_is_not_again(database, tmp_path):
    session = database._session
    assert commit(session, "q", 7, [task(database, tmp_path, 1)])
    for batch_id in (7, 6, 0):
        assert not commit(session, "q", batch_id, [task(database, tmp_path, 2)])
    assert not commit(session, "q", 7, [task(database, tmp_path, 2)._replace(path="gone")]), "its files are not even looked for"
    assert commit(session, "another", 7, [task(database, tmp_path, 3)])
    assert found(database) == [1, 3]


class Breaking:
    """A session in which one call fails, before it is carried out or after."""

    def __init__(self, session, name, error, *, after, times=1):
        self._session, self._name, self._error, self._after, self.left = session, name, error, after, times

    def __getattr__(self, name):
        call = getattr(self._session, name)
        if name != self._name:
            return call

        def broken(*args, **kwargs):
            if not self.left:
                return call(*args, **kwargs)
            self.left -= 1
            if self._after:
                call(*args, **kwargs)
            raise self._error

        return broken


CALLS = ["init_producer_id", "fetch_offsets", "produce", "commit_transaction_offsets", "end_transaction"]


@pytest.mark.parametrize("after", [False, True], ids=["asked", "answered"])
@pytest.mark.parametrize("call", CALLS)
def test_a_call_whose_outcome_is_unknown_is_tried_again_and_counts_once(database, tmp_path, call, after):
    broken = Breaking(database._session, call, ServerUnavailable(("http://x",), "gone"), after=after)
    commit(broken, "q", 0, [task(database, tmp_path, *range(50))])
    assert not broken.left
    assert found(database) == list(range(50))
    assert committed_batch(database._session, "q") == 0


@pytest.mark.parametrize("after", [False, True], ids=["asked", "answered"])
@pytest.mark.parametrize("call", CALLS)
def test_a_driver_that_gives_up_at_any_call_and_the_one_that_comes_after_it(database, tmp_path, call, after):
    broken = Breaking(database._session, call, LogdbError("the end"), after=after)
    with pytest.raises(LogdbError, match="the end"):
        commit(broken, "q", 0, [task(database, tmp_path, *range(50))])
    landed = found(database)
    assert landed == (list(range(50)) if (call, after) == ("end_transaction", True) else [])
    assert commit(database._session, "q", 0, [task(database, tmp_path, *range(50))]) == (not landed)
    assert found(database) == list(range(50))


@pytest.mark.parametrize("call", CALLS)
def test_a_zombie_commits_the_same_batch_between_any_two_calls(database, tmp_path, call):
    """A driver that was given up comes back in the middle: one of the two appends the batch, and neither fails."""

    class Haunted(Breaking):
        def __getattr__(self, name):
            if name == self._name and self.left:
                self.left = 0
                commit(self._session, "q", 0, [task(database, tmp_path, *range(50))])
            return getattr(self._session, name)

    haunted = Haunted(database._session, call, None, after=False)
    assert not commit(haunted, "q", 0, [task(database, tmp_path, *range(50))])
    assert not haunted.left
    assert found(database) == list(range(50))


def test_a_zombie_with_an_older_batch_does_nothing(database, tmp_path):
    session = database._session
    commit(session, "q", 4, [task(database, tmp_path, 4)])
    assert not commit(session, "q", 3, [task(database, tmp_path, 3)])
    assert found(database) == [4]


def test_a_commit_that_is_fenced_again_and_again_says_so(database, tmp_path):
    broken = Breaking(database._session, "end_transaction", ProducerFenced(1, 1, 2, transactional_id="q"), after=False, times=99)
    with pytest.raises(ProducerFenced):
        commit(broken, "q", 0, [task(database, tmp_path, 1)])


@pytest.mark.parametrize("damage", ["truncated", "flipped", "gone"])
def test_a_damaged_file_commits_nothing(database, tmp_path, damage):
    good, bad = task(database, tmp_path, *range(20)), task(database, tmp_path, *range(20, 40))
    if damage == "gone":
        os.unlink(bad.path)
    elif damage == "truncated":
        os.truncate(bad.path, bad.size_bytes - 1)
    else:
        with open(bad.path, "r+b") as file:
            file.seek(bad.size_bytes - 1)
            file.write(b"\xff")
    with pytest.raises(StagedFileMissing if damage == "gone" else CorruptionError, match=os.path.basename(bad.path)):
        commit(database._session, "q", 0, [good, bad])
    assert found(database) == []
    assert commit(database._session, "q", 0, [good, task(database, tmp_path, *range(20, 40))])
    assert found(database) == list(range(40))


def test_the_topic_is_deleted_between_staging_and_commit(database, tmp_path):
    files = [task(database, tmp_path, *range(20))]
    database.delete_topic("t")
    with pytest.raises(UnknownTopic):
        commit(database._session, "q", 0, files)
    database.create_topic("t", partitions=1)
    with pytest.raises(UnknownPartition):
        commit(database._session, "q", 0, files)
    assert values(database) == []


@pytest.mark.parametrize("how", ["group deleted", "topic made anew", "never there"])
def test_a_database_that_has_forgotten_what_was_noted_is_told(database, tmp_path, how):
    session = database._session
    if how != "never there":
        commit(session, "q", 3, [task(database, tmp_path, 3)])
    if how == "group deleted":
        database.delete_group("q")
    if how == "topic made anew":
        database.delete_topic("t")
        database.create_topic("t", partitions=2)
    before = found(database)
    for batch_id in (3, 4):
        with pytest.raises(CommitForgotten, match=r"batch 3 was committed.* has no batch.* failOnDataLoss=false"):
            commit(session, "q", batch_id, [task(database, tmp_path, batch_id)], noted=3)
    assert found(database) == before


def test_a_backup_that_is_older_than_the_note_is_told(database, tmp_path):
    commit(database._session, "q", 3, [task(database, tmp_path, 3)])
    with pytest.raises(CommitForgotten, match=r"batch 8 was committed.* has batch 3 as its last"):
        commit(database._session, "q", 9, [task(database, tmp_path, 9)], noted=8)
    assert commit(database._session, "q", 9, [task(database, tmp_path, 9)], noted=3), "batches without rows are not committed"


def test_several_topics_in_one_batch(database, tmp_path):
    import pyarrow as pa

    database.create_topic("u")
    schema = pa.schema([("value", pa.binary()), ("topic", pa.string())])
    file = staged(database, tmp_path / "staging", rows((b"1", "t"), (b"2", "u"), schema=schema), topic=None)
    commit(database._session, "q", 0, [file])
    assert (found(database), values(database, "u")) == ([1], [b"2"])
    assert set(database._session.fetch_offsets("q")) == {TopicPartition("t", 0), TopicPartition("u", 0)}
    database.delete_topic("u")
    assert not commit(database._session, "q", 0, [task(database, tmp_path, 2)]), "the other topic's offset is still there"


def test_a_batch_that_is_appended_in_many_groups(database, tmp_path):
    values_of = [bytes([number % 256]) * 100_000 for number in range(60)]
    files = [staged(database, tmp_path / "staging", rows(*((b"k", value) for value in values_of[at : at + 20]))) for at in (0, 20, 40)]
    assert sum(file.size_bytes for file in files) > 5 * staging.GROUP_SIZE_BYTES
    commit(database._session, "q", 0, files)
    assert values(database, partition=0) + values(database, partition=1) == values_of


def test_nothing_counts_before_the_end(database, tmp_path):
    seen = []

    class Watched(Breaking):
        def __getattr__(self, name):
            if name == self._name:
                for partition in (0, 1):
                    seen.extend(database.log("t", partition).read(0, isolation_level="read_committed"))
            return getattr(self._session, name)

    commit(Watched(database._session, "end_transaction", None, after=False), "q", 0, [task(database, tmp_path, *range(9))])
    assert seen == []


@pytest.mark.local
def test_offsets_that_a_query_has_not_committed_do_not_stop_it(database, tmp_path):
    """A group that an operator has reset: what it says counts."""
    database._session.commit_offsets("q", {TopicPartition("t", 0): OffsetAndMetadata(5)}).result()
    assert not commit(database._session, "q", 4, [task(database, tmp_path, 1)])
    assert commit(database._session, "q", 5, [task(database, tmp_path, 2)])
