import pytest

from logdb.errors import CorruptionError
from logdb.io import IO
from logdb.log import epochs
from logdb.log.epochs import EpochEnd, LeaderEpochs


def test_an_epoch_ends_where_the_next_begins():
    known = LeaderEpochs(((0, 0), (2, 10), (5, 30)))
    assert known.latest == 5
    assert [known.end_of(epoch, 99) for epoch in range(7)] == [10, 10, 30, 30, 30, 99, None]
    assert [known.at(offset) for offset in (0, 9, 10, 29, 30, 98)] == [0, 0, 2, 2, 5, 5]
    assert LeaderEpochs().latest == 0
    assert LeaderEpochs().at(5) == 0


def test_what_a_leader_answers():
    known = LeaderEpochs(((1, 5), (2, 10), (5, 30)))
    answers = [known.answer(epoch, 99) for epoch in range(7)]
    assert answers == [None, EpochEnd(1, 10), EpochEnd(2, 30), EpochEnd(2, 30), EpochEnd(2, 30), EpochEnd(5, 99), None]
    assert LeaderEpochs().answer(0, 0) is None


@pytest.mark.parametrize(
    ("leader", "follower", "end", "asked", "parts"),
    [
        # the follower is behind; ends where its leader's epoch does; has more of it
        (((0, 0),), ((0, 0),), 50, 0, EpochEnd(0, 50)),
        (((0, 0), (2, 50)), ((0, 0),), 50, 0, EpochEnd(0, 50)),
        (((0, 0), (2, 50)), ((0, 0),), 70, 0, EpochEnd(0, 50)),
        # the follower led an epoch that the leader does not know: KIP-101's case, and KIP-279's, where one question is not enough
        (((0, 0), (2, 50)), ((0, 0), (1, 40)), 70, 1, EpochEnd(0, 40)),
        (((0, 0), (1, 20), (3, 50)), ((0, 0), (2, 40)), 70, 2, EpochEnd(0, 40)),
        (((0, 0), (1, 20), (3, 50)), ((0, 0),), 40, 0, EpochEnd(0, 20)),
        # nothing in common
        (((4, 100),), ((0, 0),), 70, 0, None),
        (((2, 60), (4, 100)), ((3, 80),), 90, 3, None),
    ],
)
def test_where_a_follower_parts_from_its_leader(leader, follower, end, asked, parts):
    own = LeaderEpochs(follower)
    assert own.divergence(LeaderEpochs(leader).answer(asked, 100), end) == parts


def test_epochs_that_the_log_does_not_reach_are_forgotten():
    known = LeaderEpochs(((1, 5), (2, 10), (5, 30)))
    assert [len(known.until(end).entries) for end in (4, 5, 29, 30)] == [0, 1, 2, 3]


def test_an_epoch_without_records_is_dropped():
    assert LeaderEpochs(((0, 0), (1, 10))).begun(2, 10).entries == ((0, 0), (2, 10))
    assert LeaderEpochs(((0, 0), (1, 10))).begun(2, 11).entries == ((0, 0), (1, 10), (2, 11))


def test_the_file_is_kafkas(tmp_path):
    path, known = str(tmp_path / epochs.FILE_NAME), LeaderEpochs(((0, 0), (3, 17)))
    assert epochs.load(IO(), path) is None
    for sync in (False, True):
        epochs.save(IO(), path, known, sync=sync)
        assert (tmp_path / epochs.FILE_NAME).read_text() == "0\n2\n0 0\n3 17\n"
        assert epochs.load(IO(), path).entries == known.entries


@pytest.mark.parametrize(
    "data",
    [b"", b"0\n", b"1\n0\n", b"0\n1\n", b"0\n1\n0 0", b"0\n2\n0 0\n0 5\n", b"0\n2\n1 5\n2 5\n", b"0\n1\n-1 0\n", b"0\n1\n0 -1\n",
     b"0\n1\n00 0\n", b"0\n1\n0  0\n", b"0\n1\n0 0\n\n", b"\xff\n", b"0\n1\na b\n", b"0\n1\n2147483648 0\n"],
)  # fmt: skip
def test_anything_else_is_corrupt(data):
    with pytest.raises(CorruptionError, match="somewhere"):
        epochs.decode(data, "somewhere")
