"""Three voters in processes of their own, on loopback, killed by -9 under load; a history checker finds what was lost, twice, or stale.

lost-write         acknowledged, and missing in a history
duplicate          one write at two indexes
inconsistent       two histories that differ at an index
refused-applied    an error that says "never applied", of a write that is in a history
stale-read         a read that does not show a write acknowledged before it began
"""

import contextlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from logdb.io import IO
from logdb_replication.raft import files
from logdb_replication.raft.voters import Voter
from support.ports import free_port

SCALE = int(os.environ.get("LOGDB_TEST_SCALE", "1"))
PROGRAM = Path(__file__).parents[1] / "support" / "quorum_process.py"
WAIT_S = 30


class Process:
    """A voter's process and what it answers."""

    def __init__(self, cluster: "Cluster", number: int) -> None:
        self.number = number
        asked = {
            "number": number,
            "ports": cluster.ports,
            "directory": str(cluster.path / str(number)),
            "secret": "s" * 32,
            "peers": [list(voter) for voter in cluster.voters],
        }
        with (cluster.path / f"{number}.log").open("a") as log:
            self.child = subprocess.Popen(
                [sys.executable, PROGRAM, json.dumps(asked)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
            )
        self._answers: dict[str, dict] = {}
        self._changed = threading.Condition()
        self._count = 0
        self.over = False
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        for line in self.child.stdout:
            answer = json.loads(line)
            with self._changed:
                self._answers[answer["id"]] = answer
                self._changed.notify_all()
        with self._changed:
            self.over = True
            self._changed.notify_all()

    def ask(self, word: str, *rest: str) -> dict:
        """The answer; {"error": "gone"} where the process ends first."""
        with self._changed:
            self._count += 1
            name = f"{self._count}"
            try:
                self.child.stdin.write(" ".join((word, name, *rest)) + "\n")
                self.child.stdin.flush()
            except (OSError, ValueError):
                return {"error": "gone"}
            assert self._changed.wait_for(lambda: name in self._answers or self.over, WAIT_S), f"{word} is not answered"
            return self._answers.pop(name, {"error": "gone"})

    def kill(self) -> None:
        self.child.kill()
        self.child.wait()
        self._reader.join()
        self.child.stdout.close()
        with self._changed, contextlib.suppress(OSError):
            self.child.stdin.close()


class Cluster:
    def __init__(self, path: Path, count: int = 3) -> None:
        self.path, self.ports = path, [free_port() for _ in range(count)]
        self.voters = [Voter(number, random.getrandbits(62), "127.0.0.1", self.ports[number - 1]) for number in range(1, count + 1)]
        for voter in self.voters:
            files.create(IO(), str(path / str(voter.number)), "c", voter, self.voters)
        self.running: dict[int, Process] = {}

    def start(self, *numbers: int) -> None:
        for number in numbers or range(1, len(self.voters) + 1):
            self.running[number] = Process(self, number)

    def leader(self) -> Process:
        end = time.monotonic() + WAIT_S
        while time.monotonic() < end:
            for process in list(self.running.values()):
                if "ok" in process.ask("read", "none"):
                    return process
            time.sleep(0.05)
        raise AssertionError("no leader")

    def close(self) -> None:
        for process in self.running.values():
            process.child.send_signal(signal.SIGCONT)
            process.kill()


@pytest.fixture
def cluster(tmp_path):
    made = Cluster(tmp_path)
    made.start()
    yield made
    made.close()


class Client(threading.Thread):
    """Writes its own key, one value after the other, and reads it back; follows the leader."""

    def __init__(self, cluster: Cluster, key: str) -> None:
        super().__init__(daemon=True)
        self.cluster, self.key = cluster, key
        self.acknowledged: dict[str, int] = {}
        self.refused: set[str] = set()
        self.stale: list[str] = []
        self.gaps: list[float] = []
        self.over = threading.Event()

    def run(self) -> None:
        number, at, last_index, answered = 0, 1, 0, time.monotonic()
        while not self.over.is_set():
            process = self.cluster.running.get(at)
            number += 1
            value = f"{self.key}-{number}"
            answer = process.ask("propose", self.key, value) if process else {"error": "gone"}
            if "ok" in answer:
                last_index = self.acknowledged[value] = answer["ok"]
                self.gaps.append(time.monotonic() - answered)
                answered = time.monotonic()
                if number % 10 == 0:
                    read = process.ask("read", self.key)
                    if "ok" in read and read["ok"][0] < last_index:
                        self.stale.append(f"{read['ok']} after index {last_index}")
                continue
            if answer["error"] == "NotQuorumLeader":
                self.refused.add(value)
            at = at % len(self.cluster.voters) + 1
            time.sleep(0.02)


def check_history(clients: list[Client], histories: list[list]) -> None:
    longest = max(histories, key=len)
    for history in histories:
        assert history == longest[: len(history)], "inconsistent"
    values = [value for _, _, value in longest]
    assert len(values) == len(set(values)), "duplicate"
    index_of = {value: index for index, _, value in longest}
    for client in clients:
        assert {value: index_of.get(value) for value in client.acknowledged} == client.acknowledged, "lost-write"
        assert client.refused.isdisjoint(index_of), "refused-applied"
        assert client.stale == [], "stale-read"


def test_voters_killed_under_load_lose_nothing(cluster, record_property):
    rng = random.Random(os.getpid())
    cluster.leader()
    clients = [Client(cluster, f"k{number}") for number in range(4)]
    for client in clients:
        client.start()
    end = time.monotonic() + 5 * SCALE
    kills = 0
    while time.monotonic() < end or sum(len(client.acknowledged) for client in clients) <= 100:
        time.sleep(rng.uniform(0.2, 0.6))
        numbers = rng.choice(([cluster.leader().number], [rng.randint(1, 3)], [1, 2, 3]))
        stopped = cluster.running[rng.randint(1, 3)]
        stopped.child.send_signal(signal.SIGSTOP)
        time.sleep(rng.uniform(0, 0.5))
        stopped.child.send_signal(signal.SIGCONT)
        for number in numbers:
            cluster.running[number].kill()
            kills += 1
        time.sleep(rng.uniform(0, 0.3))
        cluster.start(*numbers)
    for client in clients:
        client.over.set()
    for client in clients:
        client.join(WAIT_S)
    leader = cluster.leader()
    committed = leader.ask("describe")["ok"]["committed"]
    histories = []
    for process in cluster.running.values():
        for _ in range(200):
            if (found := process.ask("describe"))["ok"]["applied"] >= committed:
                break
            time.sleep(0.05)
        assert found["ok"]["applied"] >= committed
        histories.append(process.ask("history")["ok"])
    check_history(clients, histories)
    count = sum(len(client.acknowledged) for client in clients)
    assert count > 100
    gap = max(max(client.gaps) for client in clients)
    record_property("told", f"quorum, real processes: {kills} kills by -9, {count} acknowledged, longest gap {gap:.2f} s")


def done(cluster, *words):
    """Ask the leader, again where it has not heard the others a moment ago, or leads no more."""
    end = time.monotonic() + WAIT_S
    while "ok" not in (answer := cluster.leader().ask(*words)):
        assert time.monotonic() < end, answer
        time.sleep(0.1)


def replaced(cluster, number):
    """Remove a voter that has lost its directory, and add a new incarnation of it; returns once it follows."""
    old = cluster.voters[number - 1]
    new = cluster.voters[number - 1] = old._replace(incarnation=old.incarnation + 1)
    shutil.rmtree(cluster.path / str(number))
    files.create(IO(), str(cluster.path / str(number)), "c", new, ())
    done(cluster, "remove", json.dumps(list(old)).replace(" ", ""))
    cluster.start(number)
    done(cluster, "propose", "k", "v")
    done(cluster, "add", json.dumps(list(new)).replace(" ", ""))
    follows(cluster, number)
    voters = cluster.running[number].ask("describe")["ok"]["voters"]
    assert {voter["incarnation"] for voter in voters} == {f"{voter.incarnation:016x}" for voter in cluster.voters}


def follows(cluster, number):
    """Wait until a voter has all that the leader has."""
    end = time.monotonic() + WAIT_S
    while True:
        process = cluster.running[number]
        follower = process.ask("describe")["ok"]["state"] == "follower"
        if follower and process.ask("history")["ok"][-1:] == cluster.leader().ask("history")["ok"][-1:]:
            return
        assert time.monotonic() < end, process.ask("describe")
        time.sleep(0.05)


def test_a_voter_without_its_journal_refuses_and_is_replaced(cluster):
    leader = cluster.leader()
    number = leader.number % 3 + 1
    cluster.running.pop(number).kill()
    (cluster.path / str(number) / files.JOURNAL).unlink()
    cluster.start(number)
    assert cluster.running[number].child.wait(WAIT_S) == 1
    cluster.running.pop(number).kill()
    assert "VoterLost" in (cluster.path / f"{number}.log").read_text()
    replaced(cluster, number)


@pytest.mark.parametrize("starts_again", [True, False], ids=["before_its_last_start", "since_its_last_start"])
def test_an_older_copy_of_a_voters_directory_is_refused_and_replaced(cluster, starts_again):
    number = cluster.leader().number % 3 + 1
    directory, copy = cluster.path / str(number), cluster.path / "copy"
    done(cluster, "propose", "k", "copied")
    follows(cluster, number)
    if starts_again:
        cluster.running.pop(number).kill()
    shutil.copytree(directory, copy)  # of a voter that has nothing to do
    if starts_again:
        cluster.start(number)
    done(cluster, "propose", "k", "later")
    follows(cluster, number)
    cluster.running.pop(number).kill()
    shutil.rmtree(directory)
    copy.rename(directory)
    cluster.start(number)
    end = time.monotonic() + WAIT_S
    while (found := cluster.running[number].ask("describe")["ok"])["state"] != "stopped":
        assert time.monotonic() < end, found
        time.sleep(0.05)
    assert "is an older copy of the voter's" in found["failure"]
    assert "logdb cluster join" in found["failure"]
    logs = "".join((cluster.path / f"{other}.log").read_text() for other in (1, 2, 3) if other != number)
    assert re.search(rf"voter {number} .* is refused, its directory is an older copy", logs)
    done(cluster, "propose", "k", "goes_on")
    cluster.running.pop(number).kill()
    cluster.start(number)
    assert cluster.running[number].child.wait(WAIT_S) == 1  # it does not start again
    cluster.running.pop(number).kill()
    assert "VoterRolledBack" in (cluster.path / f"{number}.log").read_text()
    replaced(cluster, number)
    values = [value for _, _, value in cluster.running[number].ask("history")["ok"]]
    assert [value for value in values if value in {"copied", "later", "goes_on"}] == ["copied", "later", "goes_on"]
