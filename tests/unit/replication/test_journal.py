import random

import pytest

from logdb.errors import CorruptionError
from logdb_replication.raft import files, journal, vote
from logdb_replication.raft.journal import MAGIC, Journal
from logdb_replication.raft.messages import COMMAND, NO_OP
from support.memory_io import MemoryIO

PATH, VOTE = "/journal", "/vote"


def write(io: MemoryIO, path: str, data: bytes) -> None:
    files.replace_file(io, path, data)


@pytest.fixture
def io():
    made = MemoryIO()
    write(made, PATH, journal.encode([(NO_OP, 1, 0)]))
    write(made, VOTE, vote.encode(0, None, 1))
    return made


def opened(io: MemoryIO) -> Journal:
    return Journal(io, PATH, vote.Vote(io, VOTE))


def entries(count: int, *, begin: int = 2, term: int = 1) -> list[tuple[bytes, int, int]]:
    return [(COMMAND + b"%d" % index * (index % 5), index, term) for index in range(begin, begin + count)]


def content(io: MemoryIO) -> bytearray:
    return io.names[PATH][1]


def test_entries_come_back(io):
    log = opened(io)
    for entry in entries(20):
        log.add(*entry)
    assert log.synced == 1
    assert log.sync()
    assert not log.sync()
    assert (log.base, log.last, log.synced) == (1, 21, 21)
    again = opened(io)
    assert again[:] == [(NO_OP, 1, 0), *entries(20)] == log[:]
    assert (again[-1], len(again), again.entry(7), again.term(7), again.term(22), again.term(0)) == (log[-1], 21, log[6], 1, None, None)


def test_one_sync_serves_all_entries_of_a_round(io):
    log = opened(io)
    before = io.calls
    for entry in entries(100):
        log.add(*entry)
    assert io.calls == before
    log.sync()
    assert io.calls == before + 2  # one write, one fdatasync


def test_entries_by_size(io):
    log = opened(io)
    for index in range(2, 12):
        log.add(bytes(100), index, 1)
    assert [entry[1] for entry in log.entries(4, 250)] == [4, 5]
    assert [entry[1] for entry in log.entries(4, 1)] == [4]
    assert [entry[1] for entry in log.entries(11, 1_000)] == [11]
    assert log.entries(12, 1_000) == []


@pytest.mark.parametrize("synced", [True, False])
def test_the_end_is_cut_off_and_written_again(io, synced):
    log = opened(io)
    for entry in entries(10):
        log.add(*entry)
    if synced:
        log.sync()
    log.cut(6)
    assert (log.last, log.synced) == (5, 5 if synced else 1)
    for entry in entries(3, begin=6, term=2):
        log.add(*entry)
    log.sync()
    assert opened(io)[:] == [(NO_OP, 1, 0), *entries(4), *entries(3, begin=6, term=2)]


def test_the_front_goes_at_once(io):
    log = opened(io)
    for entry in entries(10):
        log.add(*entry)
    log.drop(7)
    assert (log.base, log.last, log.synced, log.size_bytes) == (7, 11, 11, len(content(io)))
    assert opened(io)[:] == log[:] == entries(5, begin=7)
    log.reset(40, 3)
    assert opened(io)[:] == [(NO_OP, 40, 3)]


def test_whatever_a_power_cut_leaves_is_a_beginning_with_all_that_was_synced(io):
    for seed in range(300):
        rng = random.Random(seed)
        disk = MemoryIO()
        write(disk, PATH, journal.encode([(NO_OP, 1, 0)]))
        write(disk, VOTE, vote.encode(0, None, 1))
        log = opened(disk)
        for entry in entries(12):
            log.add(*entry)
            if rng.random() < 0.3:
                log.sync()
        disk_entries, synced = log[:], log.synced
        if rng.random() < 0.5:  # written, its sync did not return
            log._file.write(log._buffer, log._ends[-1] - len(log._buffer))
        disk.cut(rng)
        found = opened(disk)
        assert found[:] == disk_entries[: len(found)], seed
        assert found.last >= synced, seed


def test_entries_that_were_cut_off_never_come_back_behind_those_in_their_place():
    """The new ones may be of a lower term, and as long as the old ones: nothing else tells them apart."""
    for seed in range(200):
        rng = random.Random(seed)
        disk = MemoryIO()
        write(disk, PATH, journal.encode([(NO_OP, 1, 0)]))
        write(disk, VOTE, vote.encode(0, None, 1))
        log = opened(disk)
        for index in range(2, 9):
            log.add(COMMAND + b"old", index, 5)
        log.sync()
        log.cut(4)
        log.add(COMMAND + b"new", 4, 5)
        log._file.write(log._buffer, log._ends[-1] - len(log._buffer))  # its sync did not return
        disk.cut(rng)
        found = [command[1:] for command, _, _ in opened(disk)[1:]]
        assert found in ([b"old"] * 2, [b"old"] * 2 + [b"new"]), seed


def test_a_flipped_byte_is_found_unless_it_is_in_the_last_sync(io):
    log = opened(io)
    for first in (2, 5, 8):  # three syncs of three entries
        for entry in entries(3, begin=first):
            log.add(*entry)
        log.sync()
    whole, wanted = bytes(content(io)), log[:]
    end_of_second = log._ends[6]
    silent = 0
    for place in range(len(whole)):
        content(io)[:] = whole[:place] + bytes((whole[place] ^ 0x10,)) + whole[place + 1 :]
        try:
            found = opened(io)
        except CorruptionError:
            continue
        silent += 1
        assert place >= end_of_second, place
        assert found[:] == wanted[: len(found)]
        assert found.last >= 7
    assert silent > 0


def test_a_flipped_byte_in_the_last_sync_is_found_once_it_is_known_to_be_committed(io):
    log = opened(io)
    for entry in entries(3):
        log.add(*entry)
    log.sync()
    log.vote.store(0, None, 4)
    whole = bytes(content(io))
    for place in range(len(whole)):
        content(io)[:] = whole[:place] + bytes((whole[place] ^ 0x01,)) + whole[place + 1 :]
        with pytest.raises(CorruptionError):
            opened(io)


def test_a_file_written_at_once_has_no_unfinished_part(io):
    log = opened(io)
    for entry in entries(6):
        log.add(*entry)
    log.drop(3)
    whole = bytes(content(io))
    for place in range(len(MAGIC), log._ends[-2]):
        content(io)[:] = whole[:place] + bytes((whole[place] ^ 0x80,)) + whole[place + 1 :]
        with pytest.raises(CorruptionError):
            opened(io)


def test_a_record_vouches_for_none_that_took_the_place_of_others(io):
    """Found by the simulation: a rewritten file, its end cut off, and an unfinished write where it was."""
    log = opened(io)
    for entry in entries(10):
        log.add(*entry)
    log.drop(4)
    log.cut(7)
    log.add(COMMAND + b"other", 7, 2)
    log._file.write(log._buffer[:20], log._ends[-1] - len(log._buffer))
    assert opened(io)[:] == entries(3, begin=4)


def test_every_flipped_bit_of_a_vote_is_found(io):
    write(io, VOTE, vote.encode(7, (1, 2**63), 12))
    whole = bytes(io.names[VOTE][1])
    for place in range(len(whole) - 1):
        io.names[VOTE][1][:] = whole[:place] + bytes((whole[place] ^ 0x04,)) + whole[place + 1 :]
        with pytest.raises(CorruptionError):
            vote.Vote(io, VOTE)


def test_a_worked_example(io):
    write(io, PATH, journal.encode([(NO_OP, 1, 0), (COMMAND + b"go", 2, 3)]))
    assert content(io)[len(MAGIC) + 40 + 4 :].hex() == ("0300000002000000000000000300000000000000020000000000000000676f0000000000")
    assert opened(io)[1] == (b"\0go", 2, 3)
