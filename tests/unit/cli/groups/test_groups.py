import json
import re

import pytest
from click.testing import CliRunner

import logdb
from logdb.cli.app import cli
from logdb.cli.terminal.session import Session
from logdb.model import OffsetAndMetadata, TopicPartition
from logdb.requests.topic_changes import DeleteTopic
from support.clustered import TOKEN, clustered


@pytest.fixture
def grouped(filled):
    """Groups ``a`` (topics one and three) and ``b`` (topic one), without members."""
    with filled.open() as db:
        db.reset_offsets("a", {TopicPartition("one", 0): 40, TopicPartition("three", 0): 0})
        db.reset_offsets("b", {TopicPartition("one", 0): 100})
        db._session.commit_offsets("b", {TopicPartition("one", 0): OffsetAndMetadata(100, metadata="note")}).result()
    return filled


def offsets(command, group):
    (described,) = command.json("groups", "describe", group)
    return {(row["topic"], row["partition"]): row["committed_offset"] for row in described["offsets"]}


def test_none_yet(filled):
    result = filled("groups", "list")
    assert (result.stdout, "no groups yet" in result.stderr) == ("", True)
    assert filled.json("groups") == []
    assert "unknown group 'a'; there are none" in filled("groups", "describe", "a", code=2).stderr


def test_list(grouped):
    assert grouped.json("groups", "list") == [{"group": name, "state": "Empty", "protocol_type": ""} for name in ("a", "b")]
    assert grouped.out("groups").splitlines()[1].split() == ["a", "Empty", "-"]
    assert grouped.out("groups", "--list", kafka=True) == "a\nb\n"
    assert grouped.out("groups", "--list", "--state", kafka=True).splitlines()[0].split() == ["GROUP", "STATE"]


def test_describe_with_lag(grouped):
    (described,) = grouped.json("groups", "describe", "a")
    assert (described["group"], described["state"], described["members"]) == ("a", "Empty", [])
    row = described["offsets"][0]
    assert (row["topic"], row["committed_offset"], row["end_offset"], row["lag"], row["member_id"]) == ("one", 40, 100, 60, None)
    lines = grouped.out("groups", "describe").splitlines()
    assert lines[0].split()[:6] == ["GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG"]
    assert lines[1].split()[:6] == ["a", "one", "0", "40", "100", "60"]
    line = grouped.out("groups", "--describe", "--group", "b", kafka=True).splitlines()[2]
    assert line.split()[:6] == ["b", "one", "0", "100", "100", "0"]
    assert grouped.out("groups", "describe", "b", "--state").splitlines()[1].split() == ["b", "-", "Empty", "0", "0"]


def test_members_of_a_group_in_another_process(grouped):
    with grouped.open() as db, db.consumer("three", group_id="live", client_id="me") as consumer:
        consumer.poll()
        (described,) = grouped.json("groups", "describe", "live")
        assert described["state"] == "Stable"
        assert described["members"][0]["partitions"] == ["three-0", "three-1", "three-2"]
        assert [row["client_id"] for row in described["offsets"]] == ["me"] * 3
        where = ["127.0.0.1"] if grouped.url else ["embedded"]
        columns = grouped.out("groups", "describe", "live", "--members").splitlines()[1].split()[3:]
        assert columns == [*where, "me", "3", "three-0", "three-1", "three-2"]
        words = "close them first" if grouped.url else "open for writing"
        assert words in grouped("groups", "delete", "live", "--yes", code=2).stderr


@pytest.mark.local
def test_a_topic_that_is_gone_has_no_lag(grouped):
    with grouped.open() as db:
        db._store.submit(DeleteTopic("one"))  # as by an older version, which left the offsets
    (described,) = grouped.json("groups", "describe", "b")
    assert (described["offsets"][0]["end_offset"], described["offsets"][0]["lag"]) == (None, None)


@pytest.mark.parametrize(
    ("where", "offset"),
    [
        (["--to-earliest"], 0),
        (["--to-latest"], 100),
        (["--to-current"], 40),
        (["--to-offset", "7"], 7),
        (["--to-offset", "700"], 100),
        (["--shift-by", "5"], 45),
        (["--shift-by", "-50"], 0),
        (["--to-datetime", "2001-01-01"], 0),
        (["--to-datetime", "2100-01-01"], 100),
        (["--by-duration", "P1D"], 0),
        (["--by-duration", "1d"], 0),
        (["--by-duration", "PT0S"], 100),
    ],
)
def test_reset_shows_first(grouped, where, offset):
    result = grouped("groups", "reset-offsets", "a", "-t", "one", *where)
    assert result.stdout.splitlines()[1].split() == ["a", "one", "0", str(offset)]
    assert "--execute" in result.stderr
    assert offsets(grouped, "a")["one", 0] == 40
    done = grouped.json("groups", "reset-offsets", "a", "-t", "one", *where, "--execute")
    assert done == {"executed": True, "offsets": [{"group": "a", "topic": "one", "partition": 0, "new_offset": offset}]}
    assert offsets(grouped, "a")["one", 0] == offset


def test_reset_some_partitions_of_a_group_that_is_new(grouped):
    grouped("groups", "reset-offsets", "new", "-t", "three:0,2", "--to-latest", "--execute")
    assert set(offsets(grouped, "new")) == {("three", 0), ("three", 2)}


@pytest.mark.parametrize("kafka", [False, True])
def test_an_offset_that_is_not_committed_is_not_shifted(grouped, kafka):
    where = ("--reset-offsets", "--group", "a", "--topic", "one", "--topic", "three:0,1", "--shift-by", "1")
    for more in ([], ["--execute"]):
        said = grouped("groups", *where, *more, kafka=kafka, code=1).stderr
        assert "Cannot shift offset for partition three-1 since there is no current committed offset" in said
    assert offsets(grouped, "a") == {("one", 0): 40, ("three", 0): 0}


def test_reset_by_a_file(grouped, tmp_path):
    exported = grouped.out("groups", "reset-offsets", "a", "--all-topics", "--to-current", "--export")
    assert exported == "one,0,40\nthree,0,0\n"
    path = tmp_path / "offsets.csv"
    path.write_text(exported.replace("40", "41"))
    grouped("groups", "reset-offsets", "a", "--from-file", str(path), "--execute")
    assert offsets(grouped, "a") == {("one", 0): 41, ("three", 0): 0}
    both = grouped.out("groups", "--reset-offsets", "--all-groups", "--all-topics", "--to-current", "--export", kafka=True)
    assert both == "a,one,0,41\na,three,0,0\nb,one,0,100\n\n"
    path.write_text("one,0\n")
    assert "line 1" in grouped("groups", "reset-offsets", "a", "--from-file", str(path), code=2).stderr


def test_as_kafka_resets(grouped):
    where = ["--reset-offsets", "--group", "a", "--topic", "one", "--to-earliest"]
    for more, code in (([], 0), (["--dry-run"], 0), (["--dry-run", "--execute"], 2)):
        said = grouped("groups", *where, *more, kafka=True, code=code).stderr
        assert ("only one of --execute and --dry-run" in said) == (code == 2)
        assert offsets(grouped, "a")["one", 0] == 40
    grouped("groups", *where, "--execute", kafka=True)
    assert offsets(grouped, "a")["one", 0] == 0


def test_kafka_s_resets_and_deletions(grouped):
    def out(*flags):
        return grouped.out("groups", *flags, kafka=True)

    header = "\nGROUP           TOPIC           PARTITION  NEW-OFFSET\n"
    where = ("--group", "a", "--all-topics")
    assert (
        out("--reset-offsets", *where, "--to-earliest")
        == f"{header}a               one             0          0\na               three           0          0\n"
    )
    assert out("--delete-offsets", "--group", "a", "--topic", "one") == (
        "Request succeeded for deleting offsets from group a.\n\n"
        "TOPIC           PARTITION  STATUS         \n"
        "one             0          Successful     \n"
    )
    told = grouped("groups", "--delete-offsets", *where[:2], "--topic", "three:0,7,8", "--topic", "no", kafka=True, code=1).stdout
    assert told.splitlines()[1] == "Error: Encountered some partition-level error, see the follow-up details."
    assert [line.split()[:3] for line in told.splitlines()[4:]] == [
        ["no", "-", "Error:"],
        ["three", "0", "Successful"],
        ["three", "7", "Error:"],
        ["three", "8", "Error:"],
    ]
    assert "'a'" in grouped("groups", "--describe", "--group", "a", kafka=True, code=2).stderr, "it is gone with its last offset"
    out("--reset-offsets", *where[:2], "--topic", "one", "--to-latest", "--execute")
    assert out("--delete", "--all-groups") == "Deletion of requested consumer groups ('a', 'b') was successful.\n"


def test_kafka_s_list_by_state_and_type(grouped):
    def out(*flags):
        return [line.split() for line in grouped.out("groups", "--list", *flags, kafka=True).splitlines()]

    assert out("--state", "stable,EMPTY")[1:] == [["a", "Empty"], ["b", "Empty"]]
    assert out("--state", "stable")[1:] == []
    assert out("--type") == [["GROUP", "TYPE"], ["a", "Classic"], ["b", "Classic"]]
    assert out("--type", "classic", "--state") == [["GROUP", "TYPE", "STATE"], ["a", "Classic", "Empty"], ["b", "Classic", "Empty"]]
    assert out("--type", "consumer") == [["GROUP", "TYPE"]]
    for flag, words in (
        ("--state", "state list 'stable,Foo'. Valid states are: Assigning, "),
        ("--type", "types list 'stable,Foo'. Valid"),
    ):
        assert f"Invalid {words}" in grouped("groups", "--list", flag, "stable,Foo", kafka=True, code=1).stderr


def test_kafka_s_members_and_state(grouped):
    def describe(*flags):
        return grouped("groups", "--describe", *flags, kafka=True)

    told = describe("--group", "a", "--state")
    assert told.stderr == "\nConsumer group 'a' has no active members.\n"
    assert told.stdout.splitlines()[:1] == [""]
    assert re.split(" {2,}", told.stdout.splitlines()[1])[:1] == ["GROUP"]
    assert told.stdout.splitlines()[2].split()[-4:] == ["(0)", "-", "Empty", "0"]
    with grouped.open() as db, db.consumer("three", group_id="live", client_id="me") as consumer:
        consumer.poll()
        header, row = describe("--group", "live", "--members", "--verbose").stdout.splitlines()[1:]
        assert header.split() == [
            *("GROUP", "CONSUMER-ID", "HOST", "CLIENT-ID", "#PARTITIONS"),
            *("CURRENT-EPOCH", "CURRENT-ASSIGNMENT", "TARGET-EPOCH", "TARGET-ASSIGNMENT"),
        ]
        assert row.split()[-6:] == ["me", "3", "-", "three:0,1,2", "-", "-"]
        assert header.index("HOST") == row.index(row.split()[2], header.index("HOST"))
        assert describe("--group", "live", "--state", "--verbose").stdout.splitlines()[2].split()[-3:] == ["-", "-", "1"]


def test_the_coordinator_in_a_cluster(tmp_path):
    """Its address and id: it was no address, and before that 0, beside the addresses of all nodes."""
    with clustered(tmp_path / "db") as three, logdb.open(three.urls, token=TOKEN) as db:
        db.create_topic("t", partitions=1)
        db.reset_offsets("g", {TopicPartition("t", 0): 0})
        coordinator = three.nodes[1].broker.coordinator("__consumer_offsets", "g")
        (tmp_path / "token").write_text(TOKEN)
        flags = "--bootstrap-server", ",".join(three.urls), "--token-file", str(tmp_path / "token")
        told = CliRunner().invoke(cli, ["groups", *flags, "--describe", "--group", "g", "--state"], obj=Session(kafka=True))
    assert told.exit_code == 0, told.output
    assert told.stdout.splitlines()[2].split() == ["g", three.nodes[coordinator].kafka, f"({coordinator})", "-", "Empty", "0"]


def test_delete_shows_first(grouped):
    result = grouped("groups", "delete", "a")
    assert "would delete group a: 2 committed offsets" in result.stderr
    assert len(grouped.json("groups")) == 2
    assert grouped.json("groups", "delete", "a", "--yes") == {"executed": True, "delete": [{"group": "a", "offsets": 2}]}
    assert [group["group"] for group in grouped.json("groups")] == ["b"]
    grouped("groups", "--delete", "--group", "b", kafka=True)
    assert grouped.json("groups") == []


def test_delete_offsets(grouped):
    grouped("groups", "delete-offsets", "a", "-t", "one:0")
    assert set(offsets(grouped, "a")) == {("one", 0), ("three", 0)}
    grouped("groups", "delete-offsets", "a", "-t", "one:0", "--yes")
    assert set(offsets(grouped, "a")) == {("three", 0)}


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["reset-offsets", "a", "-t", "one"], "name a target"),
        (["reset-offsets", "a", "-t", "one", "--to-latest", "--to-offset", "3"], "only one target, not 2: --to-latest and --to-offset"),
        (["reset-offsets", "a", "--to-latest"], "name partitions"),
        (["reset-offsets", "a", "-t", "one:x", "--to-latest"], "no partitions"),
        (["reset-offsets", "a", "-t", "nosuch", "--to-latest"], "unknown topic"),
        (["reset-offsets", "a", "-t", "one:5", "--to-latest"], "no partition 5"),
        (["reset-offsets", "a", "-t", "one", "--by-duration", "1"], "not a duration"),
        (["delete", "nosuch"], "unknown group"),
        (["--describe"], "--group"),
        (["--describe", "--delete", "--group", "a"], "exactly one"),
        (["--list", "list"], "not both"),
    ],
)
def test_refused(grouped, args, words):
    assert words in grouped("groups", *args, code=2).stderr
    assert json.loads(grouped.out("groups", "list", "--json"))
