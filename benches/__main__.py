"""``python -m benches``, from the project's root: run the table, peers and ours alternately, and print it."""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from benches import report
from benches.peers import side
from benches.rows import ROWS, Result, Row
from benches.workload import CACHE, Measure, records_file

_QUICK_SHARE, _QUICK_ROUNDS, _COUNT_MIN = 10, 2, 8_000
_TIME_LIMIT_S = 300


def measure(name: str, operation: str, count: int, value_size: int, directory: Path) -> Measure:
    """One operation of one side, in a fresh process and a fresh directory."""
    place = directory / "data"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    command = [sys.executable, "-m", "benches.side", name, operation, str(count), str(value_size), str(place)]
    try:
        return Measure(**json.loads(_output(command)))
    finally:
        shutil.rmtree(place)


def _output(command: list[str]) -> str:
    """What a side prints; if it takes too long, or we are interrupted, the servers that it started end with it."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, process_group=0) as process:
        try:
            output, errors = process.communicate(timeout=_TIME_LIMIT_S)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command, output, errors)
    return output


def run(row: Row, value_size: int, rounds: int, share: int, directory: Path) -> Result:
    """Peer, ours, peer, ours …; a side that is missing is left out, and the other measured alone."""
    result = Result(row, value_size)
    runs = [(row.side, row.ours, row.count[value_size], result.ours)]
    if row.peer:
        runs.insert(0, (*row.peer, row.peer_count or row.count[value_size], result.peer))
    absent = {name: why for name, *_ in runs if (why := side(name).missing())}
    result.trouble = "; ".join(f"{name} is missing: {why}" for name, why in absent.items())
    try:
        for _ in range(rounds):
            for name, operation, full, measures in runs:
                if name not in absent:
                    count = max(min(full, _COUNT_MIN), full // share)
                    measures.append(measure(name, operation, count, value_size, directory))
    except subprocess.CalledProcessError as error:
        last = (error.stderr.strip().splitlines() or [f"exit {error.returncode}"])[-1]
        result.trouble = f"{error.cmd[3]} {error.cmd[4]} failed: {last}"
    except subprocess.TimeoutExpired as error:
        result.trouble = f"{error.cmd[3]} {error.cmd[4]} took more than {_TIME_LIMIT_S} s"
    return result


def run_all(options: argparse.Namespace) -> Iterator[Result]:
    """The rows that were asked for, each size; every result is printed as soon as it is there."""
    share = _QUICK_SHARE if options.quick else 1
    for value_size in options.size:
        records_file(value_size)
        print(report.heading(value_size), flush=True)
        for row in ROWS:
            if value_size in row.count and (not options.only or row.name in options.only):
                result = run(row, value_size, options.rounds or (_QUICK_ROUNDS if options.quick else 5), share, options.dir)
                print(report.line(result), flush=True)
                yield result


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benches", description="logdb beside its peers: ratios, peer and ours alternately")
    names = [row.name for row in ROWS]
    parser.add_argument("--only", action="append", choices=names, metavar="ROW", help=f"one row; may be repeated: {', '.join(names)}")
    parser.add_argument("--size", action="append", type=int, choices=(100, 1024), help="bytes of a value; default: both")
    parser.add_argument("--rounds", type=int, help="pairs a row (default 5)")
    parser.add_argument("--quick", action="store_true", help="a tenth of the records, two pairs: whether it runs, not how fast")
    parser.add_argument("--dir", type=Path, default=CACHE / "run", help="where data goes: on the disk to be measured")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every measure there")
    parser.add_argument("--write-readme", action="store_true", help="put the table into benches/README.md")
    options = parser.parse_args()
    options.size = options.size or [100, 1024]
    results = list(run_all(options))
    if options.json:
        machine = report.machine(options.dir)
        rows = [asdict(result) | {"ratios": result.ratios, "met": result.met} for result in results]
        options.json.write_text(json.dumps({"machine": machine, "rows": rows}, indent=1) + "\n")
    if options.write_readme:
        report.write_readme(results, options.dir)


if __name__ == "__main__":
    main()
