"""Count what a story asks of libc, then fail, cut short or kill at each of these calls: Python's, LMDB's, our own C's.

After each: what was acknowledged is there, in order, nothing is there twice or was invented, and all of it verifies. Meanwhile
the process met named errors alone, nothing hung, and nothing was acknowledged at level fsync after a sync that failed.
What passes goes on as before, without an opening anew.  What the library under the processes does not see, its source says:
faulty_libc.c.

``make check`` does a part, the same each time, spread over all kinds of calls and files.  ``make fault SECONDS=…`` does as much
as there is time for, by another seed each time.
"""

import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import time
from collections import Counter

import pytest

from support import faulty_libc
from support.fault_stories import STORIES
from support.faulty_libc import Call, Outcome, Plan, Processes, Rounds
from support.tools import needs

pytestmark = [pytest.mark.skipif(sys.platform != "linux", reason="needs Linux"), needs("gcc")]

SCALE = int(os.environ.get("LOGDB_TEST_SCALE", "1"))
SECONDS = int(os.environ.get("LOGDB_FAULT_SECONDS", "0"))  # in all; of it each story has its share
SEED = int(os.environ.get("LOGDB_FAULT_SEED", "0")) or (random.randrange(1, 1 << 30) if SECONDS else 1)
LEVELS = ("os", "interval", "fsync")
THOROUGH = {"fresh"}  # of the files that any story has


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    return faulty_libc.build(tmp_path_factory.mktemp("library"))


@pytest.fixture(scope="module")
def processes(library, tmp_path_factory):
    processes = Processes(library, tmp_path_factory.mktemp("reports"))
    yield processes
    processes.close()


PROGRAM = """
import os, sys, lmdb
root = sys.argv[1]
fd = os.open(root + "/file", os.O_RDWR | os.O_CREAT)
def write(data, position):
    try:
        print(os.pwrite(fd, data, position), flush=True)
    except OSError as error:
        print(error.strerror, flush=True)
write(b"abcdef", 0)
write(b"ghi", 6)
if os.fork() == 0:
    write(b"jkl", 9)
    os._exit(0)
os.wait()
os.fdatasync(fd)
os.rename(root + "/file", root + "/renamed")
environment = lmdb.open(root + "/lmdb", map_size=1 << 20)
try:
    with environment.begin(write=True) as txn:
        txn.put(b"key", b"value")
    print("committed")
except lmdb.Error as error:
    print(str(error).split(": ")[-1])
"""
WRITES = "kinds=pwrite\npath=file\n"


def run_program(library, tmp_path, plan: str) -> tuple[int, list[str], list[str]]:
    """Exit code, what it printed, and what the library reported."""
    root, report = tmp_path / "root", tmp_path / "report"
    root.mkdir()
    environment = {**os.environ, "LD_PRELOAD": library, "LOGDB_FAULT": f"root={root}\nreport={report}\n{plan}"}
    done = subprocess.run([sys.executable, "-c", PROGRAM, str(root)], env=environment, capture_output=True, text=True, timeout=60)
    assert not done.stderr
    return done.returncode, done.stdout.split("\n")[:-1], report.read_text().splitlines()


def test_library_sees_python_and_lmdb(library, tmp_path):
    code, said, report = run_program(library, tmp_path, "log=1")
    assert (code, said) == (0, ["6", "3", "3", "committed"])
    seen = {tuple(line.split()[1:3]) for line in report}
    assert {("create", "file"), ("pwrite", "file"), ("fdatasync", "file"), ("rename", "renamed"), ("mkdir", "lmdb")} <= seen
    assert {("create", "lmdb/data.mdb"), ("mmap", "lmdb/data.mdb"), ("fdatasync", "lmdb/data.mdb"), ("lock", "lmdb/lock.mdb")} <= seen
    assert {("pwrite", "lmdb/data.mdb"), ("write", "lmdb/data.mdb")} & seen
    assert [line for line in report if line.startswith("call pwrite file")] == [f"call pwrite file {count}" for count in (6, 3, 3)]


@pytest.mark.parametrize(
    ("plan", "code", "said", "content"),
    [
        (f"{WRITES}at=2\nerrno=5", 0, ["6", "Input/output error", "3", "committed"], b"abcdef\0\0\0jkl"),
        (f"{WRITES}at=2\nerrno=28\nkeep=1", 0, ["6", *["No space left on device"] * 2, "committed"], b"abcdef"),
        (f"{WRITES}at=1\nbytes=2", 0, ["2", "3", "3", "committed"], b"ab\0\0\0\0ghijkl"),
        (f"{WRITES}at=1\nbytes=2\nerrno=28\nkeep=1", 0, ["2", *["No space left on device"] * 2, "committed"], b"ab"),
        (f"{WRITES}at=2\ndie=before", -9, ["6"], b"abcdef"),
        (f"{WRITES}at=2\ndie=after", -9, ["6"], b"abcdefghi"),
        (f"{WRITES}at=2\nbytes=1\ndie=after", -9, ["6"], b"abcdefg"),
        ("path=*/data.mdb\nkinds=fdatasync\nat=1\nerrno=5", 0, ["6", "3", "3", "Input/output error"], b"abcdefghijkl"),
    ],
)
def test_library_does_what_is_planned(library, tmp_path, plan, code, said, content):
    ended, printed, report = run_program(library, tmp_path, plan)
    assert (ended, printed) == (code, said)
    assert len([line for line in report if line.startswith("fired ")]) == 1
    file = tmp_path / "root" / ("file" if code else "renamed")
    assert file.read_bytes() == content


class Lab:
    """One story at one level: what it begins with, what it asks of libc, and rounds of it."""

    def __init__(self, processes: Processes, story: str, level: str, place: pathlib.Path) -> None:
        self.processes, self.story, self.level, self.place = processes, story, level, place
        self.template = place / f"{story}-{level}"
        self.template.mkdir(parents=True)
        prepared = processes.do("prepare", story, level, self.template, [])
        assert prepared.code == 0 and not prepared.of("wrong"), prepared
        self.notes = prepared.of("note")
        self._number = 0
        whole, problems = self.round(None)
        assert not problems, problems
        self.calls = [Call.of(f"call {line}") for line in whole.of("call")]

    def round(self, plan: Plan | None) -> tuple[Outcome, list[str]]:
        """Tell the story on a copy, with a fault (None: with none, counting); what is wrong with it, and afterwards."""
        self._number += 1
        root = self.place / f"{self.story}-{self.level}-{self._number}"
        shutil.copytree(self.template, root)
        text = plan.text(str(root), "%") if plan is not None else f"root={root}\nreport=%\nlog=1"
        # Paths of what the template copied are those of the template.
        notes = [note.replace(str(self.template), str(root)) for note in self.notes]
        told = self.processes.do("run", self.story, self.level, root, notes, text)
        checked = self.processes.do("check", self.story, self.level, root, notes + told.of("note"))
        problems = [*judge(plan, told), *_wrong("afterwards", checked)]
        shutil.rmtree(root)
        return told, problems


def judge(plan: Plan | None, told: Outcome) -> list[str]:
    """What is wrong with how a process took its fault."""
    found = _wrong("meanwhile", told, killed=plan is not None and plan.kills and bool(told.of("fired")))
    failed = False  # a sync, and after it nothing is acknowledged at fsync; reopening ends that
    errors = [json.loads(line) for line in told.of("error")]
    sync_failed = [error for error in errors if error[1] == "SyncFailed"]
    if sync_failed and not (plan is not None and plan.may_fail_a_sync):
        found.append(f"no sync failed, yet: {sync_failed}")
    passes = plan is None or not (plan.keep or plan.kills or sync_failed)
    if passes and "false" in told.of("probe"):
        found.append(f"no records are taken any more: {errors}")
    for first, rest in told.lines:
        if first == "fired" and plan is not None:
            failed = plan.fails_a_sync
        elif first == "opened":
            failed = False
        elif first == "probe" and failed and rest == "true":
            found.append(f"records were acknowledged at fsync after a sync that failed: {told.of('fired')}")
    return found


def _wrong(when: str, outcome: Outcome, *, killed: bool = False) -> list[str]:
    found = [f"{when}: {problem}" for line in outcome.of("wrong") for problem in json.loads(line)]
    if outcome.hung:
        found.append(f"{when}: it hung: {outcome.stderr}")
    elif outcome.code != (-9 if killed else 0):
        found.append(f"{when}: it ended with {outcome.code}: {outcome.stderr}")
    elif not killed and not outcome.of("end") and not found:
        found.append(f"{when}: it did not come to its end: {outcome.lines}")
    return found


@pytest.mark.slow
@pytest.mark.timeout(max(900, 4 * SECONDS))
@pytest.mark.parametrize("story", STORIES)
def test_at_the_calls_of_libc(processes, tmp_path, story, record_property):
    print(f"LOGDB_FAULT_SEED={SEED}")
    rng = random.Random(f"{SEED} {story}")
    began, share_s = time.monotonic(), SECONDS * int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")) / len(STORIES)
    done, fired, kinds, failures = 0, 0, Counter(), []
    levels = rng.sample(LEVELS, len(LEVELS) if SECONDS else min(SCALE, len(LEVELS)))
    labs = [Lab(processes, story, level, tmp_path) for level in levels]
    plans = [(lab, plan) for lab in labs for plan in Rounds(lab.calls, rng).all()]
    count = len(plans)
    if SECONDS:
        rng.shuffle(plans)
    else:
        plans = [(lab, plan) for lab in labs for plan in Rounds(lab.calls, rng).spread(thorough=story in THOROUGH)]
    for lab, plan in plans:
        if SECONDS and time.monotonic() - began > share_s:
            break
        told, problems = lab.round(plan)
        done += 1
        for line in told.of("fired"):
            fired += 1
            kinds[line.split()[0]] += 1
        failures += [f"level {lab.level}, {plan}: fired {told.of('fired')}: {problem}" for problem in problems]
    record_property(
        "told",
        f"libc faults, seed {SEED}: {story}: {done} of {count} faults, {fired} met, "
        f"in {sum(len(lab.calls) for lab in labs)} calls of {len(kinds)} kinds",
    )
    assert not failures, f"LOGDB_FAULT_SEED={SEED}: {len(failures)} of {done}:\n" + "\n".join(failures)
    assert fired > done // 2, f"{fired} of {done} faults were met"  # beside threads, the n-th call is not always the one that was counted
