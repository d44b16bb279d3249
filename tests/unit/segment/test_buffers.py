import pytest

from logdb.segment import buffers


@pytest.mark.parametrize(
    ("size_bytes", "room_bytes"),
    [(100, buffers.READ_SIZE_BYTES), (buffers.READ_SIZE_BYTES + 1, buffers.LARGE_READ_SIZE_BYTES)],
)
def test_a_buffer_is_taken_again_once_its_last_view_is_gone(size_bytes, room_bytes):
    first = buffers.take(size_bytes)
    view = memoryview(first)[:10]
    identity = id(first)
    assert len(first) == room_bytes
    del first
    others = [buffers.take(size_bytes) for _ in range(6)]
    assert identity not in {id(other) for other in others}, "a view is still alive"
    del view, others
    assert identity in {id(other) for other in [buffers.take(size_bytes) for _ in range(4)]}


def test_all_that_are_held_differ():
    held = [buffers.take(1) for _ in range(20)]
    assert len({id(buffer) for buffer in held}) == 20


def test_a_large_one_is_new_and_as_large():
    assert len(buffers.take(buffers.LARGE_READ_SIZE_BYTES + 1)) == buffers.LARGE_READ_SIZE_BYTES + 1
