import json
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import logdb
from examples.game_events import create_topics, detect, made_up_events
from examples.spark.game_archive import archive

DAY = date(2026, 3, 1)
NOON_MS = int(datetime(2026, 3, 1, 12, tzinfo=UTC).timestamp() * 1_000)
HOUR_MS = 3_600_000


def events(count, since_ms, step_ms):
    """(user, event, timestamp): one every ``step_ms``."""
    return [(user, event, since_ms + place * step_ms) for place, (user, event) in enumerate(made_up_events(count, 5, {"user-3"}))]


def play(db, rows):
    users, played, times = zip(*rows, strict=True)
    values = [json.dumps(event).encode() for event in played]
    db.append_many("events", values, [user.encode() for user in users], timestamps_ms=times)


def day_of(timestamp_ms):
    return datetime.fromtimestamp(timestamp_ms / 1_000, UTC).date()


def expected(rows, day):
    found = []
    for user, event, timestamp_ms in rows:
        if day_of(timestamp_ms) == day:
            at = datetime.fromtimestamp(timestamp_ms / 1_000, UTC)
            found.append((day, event["kind"], at, user, event.get("country"), event.get("price")))
    return sorted(found, key=str)


def archived(spark, lake, day):
    rows = spark.read.parquet(f"{lake}/events").where(f"day = '{day}'").collect()
    return sorted(((r.day, r.kind, r.timestamp.astimezone(UTC), r.user, r.country, r.price) for r in rows), key=str)


def files(lake, day):
    directory = Path(lake.removeprefix("file://"), "events", f"day={day}")
    return sorted((file.name, file.stat().st_mtime_ns) for file in directory.rglob("*.parquet"))


def test_a_day_is_archived_again_whenever_something_has_come_late(spark, tmp_path):
    path, lake = tmp_path / "db", f"file://{tmp_path}/lake"
    place, next_day = {"path": str(path)}, DAY + timedelta(days=1)
    rows = events(400, NOON_MS, HOUR_MS // 10)  # until the day after tomorrow
    with logdb.open(path) as db:
        create_topics(db)
        play(db, rows)
        assert detect(db) > 0

    for day in (DAY, next_day):
        archive(spark, place, day, lake)
        assert archived(spark, lake, day) == expected(rows, day)
        assert expected(rows, day)
    other = files(lake, next_day)

    archive(spark, place, DAY, lake)  # once more
    assert archived(spark, lake, DAY) == expected(rows, DAY)

    trade, login = {"kind": "trade", "price": 1.5}, {"kind": "login", "country": "HOME"}
    late = [("user-9", trade, NOON_MS + 7), ("user-9", login, NOON_MS - 11 * HOUR_MS)]
    with logdb.open(path) as db:
        play(db, late)
    for _ in range(2):
        archive(spark, place, DAY, lake)
        assert archived(spark, lake, DAY) == expected(rows + late, DAY)
    assert files(lake, next_day) == other  # nobody has touched another day


def test_alerts_lie_by_their_day(spark, tmp_path):
    path, lake = tmp_path / "db", f"file://{tmp_path}/lake"
    alerts = [(f"user-{number}", f"user-{number}: logins from 4 countries", NOON_MS + number * 5 * HOUR_MS) for number in range(6)]
    with logdb.open(path) as db:
        create_topics(db)
        for user, reason, timestamp_ms in alerts:
            db.append("alerts", reason.encode(), user.encode(), timestamp_ms=timestamp_ms)
    for day in sorted({day_of(timestamp_ms) for _, _, timestamp_ms in alerts}):
        archive(spark, {"path": str(path)}, day, lake)
    found = [(row.day, row.user, row.reason) for row in spark.read.parquet(f"{lake}/alerts").collect()]
    assert sorted(found) == sorted((day_of(timestamp_ms), user, reason) for user, reason, timestamp_ms in alerts)
