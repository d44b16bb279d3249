"""``db.close()`` beside threads that use the database: each returns, by an error of ours at most, and nothing stays open."""

import asyncio
import contextlib
import threading
from collections.abc import Callable

import pytest

import logdb
import logdb.aio
from logdb.errors import Closed, LogdbError, ProducerFenced, TransactionAborted, WriteFailed
from support.open_files import open_below
from support.waiting import until

COMPACTED = {"cleanup.policy": "compact"}
ENDED_S = 30


def ours() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name.startswith("logdb-")}


class User:
    """A thread that does one thing again and again, until the database is closed."""

    def __init__(self, work: Callable[[], object]) -> None:
        self.rounds, self.error, self._work = 0, None, work
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        try:
            while True:
                try:
                    self._work()
                except Closed as error:
                    self.error = error
                    return
                except LogdbError:
                    pass  # fenced, or aborted, by others at the same
                self.rounds += 1
        except BaseException as error:  # noqa: BLE001 -- the test's to look at
            self.error = error


def begin_transactions(db: logdb.Database, name: str) -> Callable[[], None]:
    def work() -> None:
        old, new = (db.producer(transactional_id=name) for _ in range(2))
        old.begin_transaction()
        old.send("t", b"old")
        old.flush()
        new.begin_transaction()  # the other's transaction has to be aborted first
        new.send("t", b"new")
        new.commit_transaction()

    return work


def commit_offsets(db: logdb.Database) -> Callable[[], None]:
    consumer = db.consumer("t", group_id="committing", enable_auto_commit=False)

    def work() -> None:
        consumer.poll(timeout_ms=1)
        consumer.commit({("t", 0): 0})

    return work


def join_groups(db: logdb.Database) -> Callable[[], None]:
    def work() -> None:
        with db.consumer(group_id="joining", auto_offset_reset="earliest") as consumer:
            consumer.subscribe("t")
            consumer.poll(timeout_ms=1)

    return work


def use_table(db: logdb.Database) -> Callable[[], None]:
    def work() -> None:
        table = db.table("k")
        table.get(b"a")
        sum(1 for _ in table.entries())
        db.append("k", b"v", b"a")

    return work


def send(db: logdb.Database) -> Callable[[], None]:
    def work() -> None:
        with db.producer() as producer:
            producer.send("t", b"sent").result(30)

    return work


USES: dict[str, Callable[[logdb.Database], Callable[[], object]]] = {
    "begin_transaction": lambda db: begin_transactions(db, "one"),
    "transaction": lambda db: begin_transactions(db, "two"),
    "commit": commit_offsets,
    "join": join_groups,
    "table": use_table,
    "send": send,
    "append": lambda db: lambda: db.append("t", b"x", durability="fsync"),
    "read": lambda db: lambda: sum(1 for _ in db.log("t").read(0)),
    "follow": lambda db: lambda: next(db.log("t").follow(db.log("t").end_offset)),
    "watch": lambda db: lambda: next(db.watch()),
    "compact": lambda db: lambda: db.compact("k"),
    "delete": lambda db: lambda: db.delete_records("t", 0, db.log("t").end_offset // 2),
}


@pytest.mark.parametrize("attempt", range(4))
def test_nothing_hangs_and_nothing_stays_open(tmp_path, attempt):
    path = tmp_path / "db"
    before = ours()
    db = logdb.open(path)
    db.create_topic("t", config={"segment.bytes": 1 << 14})
    db.create_topic("k", config=COMPACTED)
    db.append("t", b"first")
    users = {name: User(use(db)) for name, use in USES.items()}
    busy = [name for name in USES if name != "watch"]
    until(lambda: all(users[name].rounds > attempt for name in busy), f"each was at it {attempt + 1} times", ENDED_S)
    with contextlib.suppress(ProducerFenced, TransactionAborted):  # what a producer's record failed with
        db.close()
    for name, user in users.items():
        user.thread.join(ENDED_S)
        assert not user.thread.is_alive(), f"{name} hangs after close() has returned"
        assert isinstance(user.error, Closed), f"{name} ended by {user.error!r}"
    assert ours() - before == set()
    assert open_below(path) == []
    with logdb.open(path) as again:  # while the old database, and its tables, are there still
        assert again.table("k").get(b"a") == b"v"
        assert again.reports == ()
    assert logdb.verify(path).ok
    assert open_below(path) == []


# ---------------------------------------------------------------- one moment at a time


def test_a_table_after_the_close(tmp_path):
    db = logdb.open(tmp_path / "db")
    db.create_topic("k", config=COMPACTED)
    db.append("k", b"v", b"a")
    table, entries = db.table("k"), db.table("k").entries()
    assert table[b"a"] == b"v" and next(entries).key == b"a"
    db.close()
    for use in (lambda: table[b"a"], lambda: len(table), table.refresh, table.positions, lambda: list(table), lambda: db.table("k")):
        with pytest.raises(Closed):
            use()
    assert open_below(tmp_path) == []
    with logdb.open(tmp_path / "db") as again:
        assert again.table("k")[b"a"] == b"v"


def test_a_table_between_the_close_of_the_views_and_that_of_the_files(tmp_path):
    db = logdb.open(tmp_path / "db")
    db.create_topic("k", config=COMPACTED)
    db.append("k", b"v", b"a")
    table = db.table("k")
    assert table[b"a"] == b"v"
    found = []

    def beside() -> None:
        for use in (lambda: table[b"a"], lambda: db.table("k")[b"a"], db.producer, lambda: db.producer(transactional_id="x")):
            try:
                use()
            except Closed as error:
                found.append(error)

    close = db._broker.close
    db._broker.close = lambda: (beside(), close())  # the views are closed by then, the files are not
    db.close()
    assert len(found) == 4
    assert open_below(tmp_path) == []


def test_a_transaction_that_begins_when_the_coordinators_have_ended(tmp_path):
    """Its predecessor's has to be aborted first, and no thread does that any more."""
    db = logdb.open(tmp_path / "db")
    db.create_topic("t")
    old = db.producer(transactional_id="x")
    old.begin_transaction()
    old.send("t", b"v")
    old.flush()
    session, raised = db._session, []
    end = session._markers.close

    def beside() -> None:
        for name in ("x", "x"):  # the second would wait for what the first has begun
            try:
                session.init_producer_id(name)
            except LogdbError as error:
                raised.append(error)

    def close_endings() -> None:
        thread = threading.Thread(target=beside, daemon=True)
        thread.start()
        thread.join(ENDED_S)
        assert not thread.is_alive(), "it waits for an answer that never comes"
        end()

    session._markers.close = close_endings
    for shard in session._transactions.for_each(lambda each: each):
        shard._execute = lambda action: (_ for _ in ()).throw(WriteFailed("t-0", "to be tried again by a timer"))
    db._producers.clear()  # the client is gone
    db.close()
    old._sender.stop(None)
    assert [type(error) for error in raised] == [Closed, Closed], raised


def test_a_broker_that_is_made_beside_the_close(tmp_path):
    db = logdb.open(tmp_path / "db")
    assert db._broker is None
    close, found = db._store.close, []

    def beside() -> None:
        try:
            db.session.groups()
        except Closed as error:
            found.append(error)
        close()

    db._store.close = beside
    db.close()
    assert found and db._broker is None


def test_a_fenced_producer_closes_without_an_error(tmp_path):
    with logdb.open(tmp_path / "db") as db:
        db.create_topic("t")
        fenced = db.producer(transactional_id="T")
        fenced.begin_transaction()
        fenced.send("t", b"lost")
        fenced.flush()
        with db.transaction("T") as tx:
            tx.send("t", b"kept")
    with logdb.open(tmp_path / "db") as db:
        assert [record.value for record in db.log("t").read(0, isolation_level="read_committed")] == [b"kept"]


def test_a_commit_beside_a_close_says_closed(tmp_path):
    with logdb.open(tmp_path / "db") as db:
        db.create_topic("t")
        producer = db.producer(transactional_id="T")
        producer.begin_transaction()
        producer.send("t", b"v")
        producer._closed = True  # the close of another thread is here
        producer._drop_transaction(TransactionAborted("the transaction of 'T' was aborted"))
        with pytest.raises(Closed):
            producer.send("t", b"later")
        with pytest.raises(Closed, match="before its transaction was committed"):
            producer.commit_transaction()
    with logdb.open(tmp_path / "db") as db:
        assert list(db.log("t").read(0, isolation_level="read_committed")) == []


def test_a_cancelled_begin_leaves_no_transaction_open(tmp_path):
    async def main():
        async with logdb.aio.open(tmp_path / "db") as db:
            await db.create_topic("t")
            entering = asyncio.create_task(db.transaction("T").__aenter__())
            await asyncio.sleep(0)
            entering.cancel()
            with pytest.raises(asyncio.CancelledError):
                await entering
            for _ in range(1000):  # the thread begins the transaction, then another one aborts it
                found = [one.state for one in await db.transactions()]
                if "Empty" in found or "CompleteAbort" in found:
                    break
                await asyncio.sleep(0.001)
            async with db.transaction("T") as tx:
                await tx.send("t", b"v")

    asyncio.run(main())
    with logdb.open(tmp_path / "db") as db:
        assert [record.value for record in db.log("t").read(0, isolation_level="read_committed")] == [b"v"]
