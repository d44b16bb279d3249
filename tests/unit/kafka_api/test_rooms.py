from logdb_kafka_api.rooms import Rooms


def test_a_room_is_used_again_once_nothing_refers_to_it():
    rooms = Rooms()
    room = rooms.take(1_000_000)
    first = id(room)
    assert id(rooms.take(1_000_000)) != first, "it is in use"
    view = memoryview(room)[:10]
    del room
    assert id(rooms.take(1_000_000)) != first, "a view of it is"
    del view
    assert id(rooms.take(900_000)) == first


def test_a_room_is_as_large_as_what_is_asked_for():
    rooms = Rooms()
    for size_bytes in (1, 100_000, 262_144, 262_145, 3_000_000, 50_000_000):
        assert size_bytes <= len(rooms.take(size_bytes)) < size_bytes + 262_144


def test_few_rooms_are_kept_and_none_that_is_very_large():
    rooms = Rooms()
    held = [rooms.take(100_000) for _ in range(20)]
    large = rooms.take(50_000_000)
    assert len(rooms._kept) == 4 and large not in rooms._kept
    del held
    assert len(rooms.take(1_000_000)) >= 1_000_000
    assert max(map(len, rooms._kept)) >= 1_000_000, "it takes the place of a smaller one"
