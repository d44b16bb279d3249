"""DescribeLogDirs: the room in the file system."""

import os

from logdb.io import IO
from support.kafka_door import kafka_door
from support.kafka_wire import Wire


def test_the_room_of_the_file_system(tmp_path, monkeypatch):
    with kafka_door(tmp_path / "db") as served, Wire(served.address) as wire:
        status = os.statvfs(tmp_path)
        (place,) = wire.ask("DescribeLogDirs", 4, topics=[])["results"]
        assert place["total_bytes"] == status.f_blocks * status.f_frsize
        assert 0 < place["usable_bytes"] <= place["total_bytes"]
        monkeypatch.setattr(IO, "file_system_bytes", lambda *_: 1 << 63)  # the system does not say
        monkeypatch.setattr(IO, "free_bytes", lambda *_: 1 << 63)
        (place,) = wire.ask("DescribeLogDirs", 4, topics=[])["results"]
        assert (place["total_bytes"], place["usable_bytes"]) == (-1, -1)
