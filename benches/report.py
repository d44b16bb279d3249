"""Results as lines of text and as tables in README.md.

Knows how figures are shown.  Does not know how they came about.
"""

import os
import platform
import re
import statistics
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from benches.rows import ROWS, Result
from benches.workload import Measure

_README = Path(__file__).parent / "README.md"
_BEGIN, _END = "<!-- results: written by python -m benches --write-readme -->", "<!-- end of results -->"
_LAYOUT = "{:<56} {:>22} {:>22} {:>20} {:>9} {:>5}"
_COLUMNS = ("work; peer", "ours", "peer", "ratio", "goal", "met")


def heading(value_size: int) -> str:
    return f"\nvalues of {value_size} B, keys of 16 B: median (least–most)\n" + _LAYOUT.format(*_COLUMNS)


def line(result: Result) -> str:
    """One row of the table as text."""
    return _LAYOUT.format(*cells(result)) + (f"  {result.trouble}" if result.trouble else "")


def cells(result: Result) -> tuple[str, ...]:
    """The row's work, ours, peer's, ratio, goal, and whether it was met."""
    goal = ""
    if result.value_size == 100:
        if result.row.limit is not None:
            unit = result.ours[0].unit if result.ours else ""
            limit, unit = (result.row.limit * 1e3, "k/s") if unit == "M/s" else (result.row.limit, unit)
            goal = f"{'≥' if unit.endswith('/s') else '≤'} {limit:g} {unit}".rstrip()
        elif result.row.goal is not None:
            goal = f"≥ {result.row.goal:.3g} ×"
    met = {True: "yes", False: "no", None: ""}[result.met]
    peer = _spread(result.peer) if result.row.peer else "–"
    return (result.row.work, _spread(result.ours), peer, _span(result.ratios, " ×"), goal, met)


def _spread(measures: Sequence[Measure]) -> str:
    if not measures:
        return "missing"
    scale, unit = 1.0, measures[0].unit
    if unit == "M/s" and max(measure.value for measure in measures) < 0.1:
        scale, unit = 1e3, "k/s"
    return _span([measure.value * scale for measure in measures], " " + unit)


def _span(values: Sequence[float], unit: str) -> str:
    if not values:
        return ""
    middle, least, most = (f"{value:.3g}" for value in (statistics.median(values), min(values), max(values)))
    return f"{middle}{unit} ({least}–{most})"


def machine(directory: Path) -> dict[str, str]:
    """What the figures were measured on."""
    with open("/proc/cpuinfo") as file:
        found = re.search(r"model name\s*: (.*)", file.read())
    directory.mkdir(parents=True, exist_ok=True)
    disk = subprocess.run(["df", "--output=source,fstype", directory], capture_output=True, text=True, check=False).stdout
    return {
        "processor": f"{os.cpu_count()} × {found[1] if found else platform.processor()}",
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB",
        "system": f"{platform.system()} {platform.release()}",
        "disk": " ".join(disk.split()[2:]),
        "python": platform.python_version(),
        "load": f"{os.getloadavg()[2]:.2f} over 15 minutes at the end",
    }


def write_readme(results: Sequence[Result], directory: Path) -> None:
    """Write the rows that were run into the table; the others stay as they are, with the day of their own run."""
    old = _README.read_text()
    begin, end = old.index(_BEGIN) + len(_BEGIN), old.index(_END)
    rows = _rows(old[begin:end])
    today = time.strftime("%Y-%m-%d")
    rows |= {(result.value_size, result.row.work): (*cells(result), today) for result in results}
    text = [f"On {today}: " + "; ".join(f"{name} {value}" for name, value in machine(directory).items()) + "."]
    for value_size in sorted({value_size for value_size, _ in rows}):
        there = [rows[value_size, row.work] for row in ROWS if (value_size, row.work) in rows]
        text += ["", f"Values of {value_size} B, medians (least–most):", ""]
        text += [_markdown(row) for row in ((*_COLUMNS, "run"), ("---",) * (len(_COLUMNS) + 1), *there)]
    _README.write_text(old[:begin] + "\n" + "\n".join(text) + "\n" + old[end:])


def _rows(table: str) -> dict[tuple[int, str], tuple[str, ...]]:
    """The rows of a table that was written, by size and work."""
    rows, value_size = {}, 0
    for line in table.splitlines():
        if found := re.match(r"Values of (\d+) B", line):
            value_size = int(found[1])
        elif line.startswith("|"):
            row = tuple(cell.strip() for cell in line.strip("|").split("|"))
            rows[value_size, row[0]] = row
    return rows


def _markdown(row: Sequence[str]) -> str:
    return "| " + " | ".join(row) + " |"
