from collections import Counter
from datetime import UTC, datetime

import logdb
from examples.spark.page_views import COUNTS, VIEWS, count_views, create_topics

MINUTE_MS = 60_000
BEGIN_MS = int(datetime(2026, 3, 1, 8, 57, tzinfo=UTC).timestamp() * 1_000)


def views():
    """(page, timestamp, whether it counts), as they come: most in time, some 8 minutes late, some 3 hours."""
    for number in range(900):
        at, page = BEGIN_MS + number * MINUTE_MS // 4, f"/{number % 3}"
        if number > 720 and number % 50 == 0:
            yield page, at - 180 * MINUTE_MS, False
        else:
            yield page, at - (8 * MINUTE_MS if number % 7 == 0 else 0), True


def expected():
    """Each view that is in time, in each window of ten minutes, begun every five, that it lies in."""
    counts = Counter()
    for page, at, counted in views():
        last = at - at % (5 * MINUTE_MS)
        for begin in (last - 5 * MINUTE_MS, last) if counted else ():
            counts[f"{page}@{datetime.fromtimestamp(begin / 1_000, UTC):%Y-%m-%dT%H:%MZ}"] += 1
    return counts


def test_views_count_in_each_of_their_windows_unless_they_are_far_too_late(spark, tmp_path):
    place, checkpoint = {"path": str(tmp_path / "db")}, str(tmp_path / "checkpoint")
    rows = list(views())
    for run in (rows[:500], rows[500:]):
        with logdb.open(tmp_path / "db") as db:
            create_topics(db)
            pages, times, _ = zip(*run, strict=True)
            db.append_many(VIEWS, [b""] * len(run), [page.encode() for page in pages], timestamps_ms=times)
        query = count_views(spark, place, checkpoint, maxOffsetsPerTrigger="200")
        query.awaitTermination()
    with logdb.open(tmp_path / "db", mode="r") as db:
        found = {key.decode(): int(value) for key, value in db.table(COUNTS).items()}
    assert found == expected()
    state = [progress["stateOperators"][0] for progress in query.recentProgress]
    assert sum(operator["numRowsDroppedByWatermark"] for operator in state) == 2 * sum(not counted for *_, counted in rows)
    assert state[-1]["numRowsTotal"] < len(found) / 4  # what is over is forgotten
