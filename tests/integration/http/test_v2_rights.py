"""What each route of REST v2 needs: with all of it a request gets through, and without any part of it it does not."""

from pathlib import Path
from typing import Any

import pytest

from logdb_http_api.door.routing import Route
from logdb_http_api.v2 import consumers as v2_consumers
from logdb_http_api.v2 import routes as v2
from support.security import secure
from support.serving import Served, served

V2, JSON = "application/vnd.kafka.v2+json", "application/vnd.kafka.json.v2+json"
INSTANCE = v2_consumers.INSTANCE
ALICE = ("alice", "open sesame")
USERS = dict([ALICE])
NAMES = {"Topic": "t", "Group": "g"}
PARTITIONS = {"partitions": [{"topic": "t", "partition": 0}]}
OFFSETS = {"offsets": [{"topic": "t", "partition": 0, "offset": 0}]}
RECORDS = {"records": [{"value": 1}]}
BODIES: dict[tuple[str, str], Any] = {
    ("POST", "/topics/{topic}"): RECORDS,
    ("POST", "/topics/{topic}/partitions/{partition}"): RECORDS,
    ("POST", "/consumers/{group}"): {"name": "other"},
    ("POST", INSTANCE + "/subscription"): {"topics": ["t"]},
    ("POST", INSTANCE + "/assignments"): PARTITIONS,
    ("POST", INSTANCE + "/offsets"): OFFSETS,
    ("GET", INSTANCE + "/offsets"): PARTITIONS,
    ("POST", INSTANCE + "/positions"): OFFSETS,
    ("POST", INSTANCE + "/positions/beginning"): PARTITIONS,
    ("POST", INSTANCE + "/positions/end"): PARTITIONS,
}
ROUTES = [*v2.routes.all, *v2_consumers.routes.all]
REFUSING = [route for route in ROUTES if route.needs and route.path != "/topics"]  # that one leaves out instead


def ask(server: Served, route: Route, *allowed: str) -> tuple[int, Any]:
    """Ask as somebody who is allowed just this, with an instance that reads already."""
    secure(server.database.path, users=USERS, super_users=USERS)
    server = server.by(*ALICE)
    made = server.call("/consumers/g", {"name": "i", "format": "json", "auto.offset.reset": "earliest"}, content_type=V2)
    assert made[0] == 200
    if route.path != INSTANCE + "/subscription":
        assert server.call("/consumers/g/instances/i/assignments", PARTITIONS, content_type=V2)[0] == 204
    secure(server.database.path, *(f"Allow alice@* {need} {NAMES[need.split()[1]]}" for need in allowed), users=USERS)
    path = route.path.format(topic="t", partition=0, group="g", instance="i")
    body = BODIES.get((route.method, route.path))
    return server.call(path, body, method=route.method, content_type=JSON if body is RECORDS else V2)


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
def test_a_request_gets_through_with_all_that_it_needs(tmp_path: Path, route: Route) -> None:
    with served(tmp_path / "db") as server:
        server.database.create_topic("t")
        server.database.log("t", 0).append(b"1")
        status, told = ask(server, route, *route.needs)
        assert status in (200, 204), told


@pytest.mark.parametrize(
    ("route", "missing"), [(route, need) for route in REFUSING for need in route.needs], ids=lambda one: getattr(one, "path", one)
)
def test_a_request_is_refused_without_any_part_of_it(tmp_path: Path, route: Route, missing: str) -> None:
    with served(tmp_path / "db") as server:
        server.database.create_topic("t")
        server.database.log("t", 0).append(b"1")
        status, told = ask(server, route, *(need for need in route.needs if need != missing))
        assert status == 403, told


def test_topics_that_may_not_be_described_are_left_out(tmp_path: Path) -> None:
    with served(tmp_path / "db") as server:
        for name in ("t", "secret"):
            server.database.create_topic(name)
        secure(server.database.path, "Allow alice@* Describe Topic t", users=USERS)
        assert server.by(*ALICE).call("/topics") == (200, ["t"])


def test_a_member_that_may_nothing_any_more_can_still_be_deleted(tmp_path: Path) -> None:
    """Its group misses it once the member's time is over."""
    with served(tmp_path / "db") as server:
        server.database.create_topic("t")
        secure(server.database.path, users=USERS, super_users=USERS)
        alice = server.by(*ALICE)
        assert alice.call("/consumers/g", {"name": "i"}, content_type=V2)[0] == 200
        assert alice.call("/consumers/g/instances/i/subscription", {"topics": ["t"]}, content_type=V2)[0] == 204
        assert alice.call("/consumers/g/instances/i/records?timeout=1") == (200, [])
        assert len(server.database.describe_group("g").members) == 1
        secure(server.database.path, users=USERS)
        assert alice.call("/consumers/g/instances/i/records?timeout=1")[0] == 403
        assert alice.call("/consumers/g/instances/i", method="DELETE")[0] == 204
        assert alice.call("/consumers/g/instances/i", method="DELETE")[0] == 404


def test_to_go_on_from_a_time_needs_to_know_the_topic(tmp_path: Path) -> None:
    with served(tmp_path / "db") as server:
        server.database.create_topic("t")
        secure(server.database.path, users=USERS, super_users=USERS)
        alice, times = server.by(*ALICE), {"timestamps": [{"topic": "t", "partition": 0, "timestamp": 0}]}
        assert alice.call("/consumers/g", {"name": "i"}, content_type=V2)[0] == 200
        assert alice.call("/consumers/g/instances/i/assignments", PARTITIONS, content_type=V2)[0] == 204
        assert alice.call("/consumers/g/instances/i/positions", times, content_type=V2)[0] == 204
        secure(server.database.path, "Allow alice@* Read Group g", users=USERS)
        assert alice.call("/consumers/g/instances/i/positions", times, content_type=V2)[0] == 403
