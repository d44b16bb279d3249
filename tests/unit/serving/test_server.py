"""server.py: each door is given the options that it takes, and an option that none takes is named."""

from dataclasses import dataclass
from importlib.metadata import EntryPoint

import pytest

import logdb
from logdb.access.access_control import AccessControl
from logdb.serving import server
from logdb.serving.limits import Limits
from logdb.serving.server import Server


@dataclass(frozen=True, kw_only=True, slots=True)
class FrameLimits(Limits):
    frame_bytes_max: int = 1
    keep_alive_ms: int = 600_000


class Words:
    """A door that keeps what it is given."""

    LIMITS, OPTIONS = Limits, frozenset(("access_log",))

    def __init__(self, access, address, **options):
        self.address, self.options = address, options


class Frames(Words):
    LIMITS, OPTIONS = FrameLimits, frozenset(("advertised",))


@pytest.fixture
def access(tmp_path, monkeypatch):
    points = {name: EntryPoint(name, f"{__name__}:{name}", "logdb.doors") for name in ("Words", "Frames")}
    monkeypatch.setattr(EntryPoint, "load", lambda point: globals()[point.name])
    monkeypatch.setattr(server, "announced", lambda group: points if group == "logdb.doors" else {})
    with logdb.open(tmp_path / "db") as db:
        yield AccessControl(db._session)


def test_each_door_is_given_what_it_takes(access):
    common = {"tls_cert": "c.pem", "memory_bytes_max": 7}
    doors = {"Words": "127.0.0.1:0", "Frames": "127.0.0.1:0"}
    words, frames = Server(access, doors, access_log=True, advertised="a:1", frame_bytes_max=5, **common)._doors
    assert (words.address, words.options) == ("127.0.0.1:0", common | {"access_log": True})
    assert (frames.address, frames.options) == ("127.0.0.1:0", common | {"advertised": "a:1", "frame_bytes_max": 5})


def test_an_option_that_no_door_takes_is_named(access):
    told = r"no option nonsense; it has Frames, Words, .*access_log, .*; its limits are body_timeout_ms, .*, frame_bytes_max, "
    with pytest.raises(TypeError, match=told):
        Server(access, {"Words": "127.0.0.1:0", "Frames": "127.0.0.1:0"}, nonsense=1)


def test_options_of_a_door_that_is_made_for_a_connection(access):
    access_server = Server(access, {"Words": "127.0.0.1:0"}, frame_bytes_max=5)
    (words,) = access_server._doors
    assert words.options == {}
    assert access_server._made(Frames, "").options == {"frame_bytes_max": 5}
    with pytest.raises(ValueError, match="frame_bytes_max=0: must be a whole number, 1 or more"):
        Server(access, {"Words": "127.0.0.1:0"}, frame_bytes_max=0)


def test_a_limit_is_a_whole_number_from_1_on():
    assert FrameLimits(frame_bytes_max=3) == FrameLimits(frame_bytes_max=3, keep_alive_ms=600_000)
    for wrong in (0, -1, "5", None, 1.5):
        with pytest.raises(ValueError, match=r"keep_alive_ms=.*: must be a whole number, 1 or more"):
            FrameLimits(keep_alive_ms=wrong)
    assert Limits(connections_per_address_max=None) == Limits()
