import pytest

from logdb.access import security_document
from logdb.io import IO
from logdb.store.security_file import SecurityFile
from support.security import acl

pytestmark = pytest.mark.local


def kept(command):
    content = security_document.load(SecurityFile(IO(), command.data_dir))
    return set(content.acls) if content else set()


def of(*texts):
    return set(map(acl, texts))


ADDED = [
    ("--allow-principal User:alice --topic t", ["Allow alice@* All Topic t"]),
    ("--allow-principal alice --operation Read --topic t", ["Allow alice@* Read Topic t"]),
    (
        "--allow-principal User:* --operation READ --operation describe-configs --topic *",
        ["Allow *@* Read Topic *", "Allow *@* DescribeConfigs Topic *"],
    ),
    ("--deny-principal eve --deny-host 10.0.0.7 --topic t", ["Deny eve@10.0.0.7 All Topic t"]),
    (
        "--allow-principal a --allow-principal b --allow-host h1 --allow-host h2 --operation Read --group g",
        [f"Allow {user}@{host} Read Group g" for user in "ab" for host in ("h1", "h2")],
    ),
    (
        "--allow-principal a --allow-host h1 --deny-principal b --operation Write --topic t",
        ["Allow a@h1 Write Topic t", "Deny b@* Write Topic t"],
    ),
    ("--allow-principal a --topic ord --resource-pattern-type prefixed", ["Allow a@* All Topic ord…"]),
    ("--allow-principal a --cluster --operation Create", ["Allow a@* Create Cluster kafka-cluster"]),
    (
        "--allow-principal a --cluster --topic x --resource-pattern-type prefixed --operation Create",
        ["Allow a@* Create Cluster kafka-cluster", "Allow a@* Create Topic x…"],
    ),
    ("--allow-principal a --producer --topic t", [f"Allow a@* {one} Topic t" for one in ("Write", "Describe", "Create")]),
    (
        "--allow-principal a --producer --topic t --transactional-id x --idempotent",
        [
            *(f"Allow a@* {one} Topic t" for one in ("Write", "Describe", "Create")),
            *(f"Allow a@* {one} TransactionalId x" for one in ("Write", "Describe")),
            "Allow a@* IdempotentWrite Cluster kafka-cluster",
        ],
    ),
    (
        "--allow-principal a --consumer --topic t --group g",
        ["Allow a@* Read Topic t", "Allow a@* Describe Topic t", "Allow a@* Read Group g"],
    ),
]


@pytest.mark.parametrize(("args", "texts"), ADDED, ids=[args for args, _ in ADDED])
@pytest.mark.parametrize("way", ["add", "--add"])
def test_add(logdb_command, args, texts, way):
    logdb_command("acls", way, *args.split())
    assert kept(logdb_command) == of(*texts)
    logdb_command("acls", way, *args.split())
    assert kept(logdb_command) == of(*texts)


@pytest.fixture
def granted(logdb_command):
    for args in (
        "--allow-principal alice --operation Read --topic orders",
        "--allow-principal alice --operation All --topic ord --resource-pattern-type prefixed",
        "--allow-principal bob --allow-host 10.0.0.1 --operation Write --topic *",
        "--deny-principal alice --operation Read --group orders",
        "--allow-principal bob --operation Create --cluster",
    ):
        logdb_command("acls", "add", *args.split())
    return logdb_command


READ, PREFIX, STAR, GROUP, CLUSTER = (
    "Allow alice@* Read Topic orders",
    "Allow alice@* All Topic ord…",
    "Allow bob@10.0.0.1 Write Topic *",
    "Deny alice@* Read Group orders",
    "Allow bob@* Create Cluster kafka-cluster",
)
FOUND = [
    ("", [READ, PREFIX, STAR, GROUP, CLUSTER]),
    ("--topic orders", [READ]),
    ("--topic orders --resource-pattern-type match", [READ, PREFIX, STAR]),
    ("--topic orders --resource-pattern-type any", [READ]),
    ("--topic ord --resource-pattern-type prefixed", [PREFIX]),
    ("--topic ord --resource-pattern-type any", [PREFIX]),
    ("--topic ord", []),
    ("--topic orders --group orders", [READ, GROUP]),
    ("--cluster", [CLUSTER]),
    ("--principal alice", [READ, PREFIX, GROUP]),
    ("--principal User:alice --principal User:bob --topic *", [STAR]),
    ("--deny-principal alice", [GROUP]),
    ("--allow-principal bob --allow-host 10.0.0.1", [STAR]),
    ("--operation Read", [READ, GROUP]),
    ("--operation Read --topic orders --group orders --principal alice", [READ, GROUP]),
    ("--producer --topic *", [STAR]),
    ("--consumer --topic orders --group orders", [READ, GROUP]),
]


@pytest.mark.parametrize(("args", "texts"), FOUND, ids=[args for args, _ in FOUND])
def test_list_and_remove_mean_the_same(granted, args, texts):
    found = granted.json("acls", "list", *args.split())
    assert found == granted.json("acls", "--list", *args.split())
    shown = {tuple(one.values()) for one in found}
    assert shown == {tuple(str(field) for field in one) for one in of(*texts)}
    before = kept(granted)
    would = granted("acls", "remove", *args.split())
    assert kept(granted) == before
    assert ("no ACL matches the options" if not texts else f"--yes removes {len(texts)} ACL") in would.stderr
    granted("acls", "remove", *args.split(), "--yes")
    assert kept(granted) == before - of(*texts)


def test_as_a_table(granted):
    lines = [line.split() for line in granted.out("acls", "list", "--topic", "orders").splitlines()]
    assert lines[1] == ["Topic", "orders", "Literal", "Allow", "User:alice", "*", "Read"]


def test_in_words(logdb_command):
    whom = ("--allow-principal", "alice", "--deny-principal", "eve")
    added = logdb_command("acls", "add", *whom, "--operation", "Read", "--topic", "ord", "--resource-pattern-type", "prefixed").stderr
    assert "added: User:alice from * may Read Topic 'ord' and names that begin so" in added
    assert "added: User:eve from * may not Read Topic 'ord' and names that begin so" in added


def test_as_kafka_prints_it(logdb_command):
    args = ["--add", "--allow-principal", "User:alice", "--operation", "DescribeConfigs", "--operation", "Read", "--topic", "t"]
    title = " for resource `ResourcePattern(resourceType=TOPIC, name=t, patternType=LITERAL)`:"
    block = (
        "\t(principal=User:alice, host=*, operation=DESCRIBE_CONFIGS, permissionType=ALLOW)\n"
        "\t(principal=User:alice, host=*, operation=READ, permissionType=ALLOW)\n\n"
    )
    assert logdb_command.out("acls", *args, kafka=True) == f"Adding ACLs{title} \n {block}"
    assert logdb_command.out("acls", "--list", kafka=True) == f"Current ACLs{title}\n{block}"
    of_two = logdb_command.out("acls", "--list", "--principal", "User:carol", "--principal", "User:alice", kafka=True)
    assert of_two == f"ACLs for principal `User:carol`\nACLs for principal `User:alice`\nCurrent ACLs{title}\n{block}"
    logdb_command("acls", "--remove", "--topic", "t", kafka=True)
    assert kept(logdb_command) == set()


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ("add --topic t", "name a principal"),
        ("add --allow-principal a", "name a resource"),
        ("add --allow-principal User: --topic t", "must be KIND:NAME"),
        ("add --allow-principal a --topic t --operation Fly", "'Fly': must be Read"),
        ("add --allow-principal a --group g --operation Write", "operation 'Write': must be Read, Describe, Delete or All"),
        ("add --allow-principal a --topic t --resource-pattern-type match", "'match' is not one of 'literal', 'prefixed'"),
        ("--add --allow-principal a --topic t --resource-pattern-type match", "match is for list and remove"),
        ("--add --list", "exactly one of"),
        ("--list add", "not both"),
    ],
)
def test_refused(logdb_command, args, words):
    assert words in logdb_command("acls", *args.split(), code=2).stderr
    assert kept(logdb_command) == set()


def test_no_acls_yet(logdb_command):
    logdb_command("topics", "create", "t")
    assert "no ACLs" in logdb_command("acls").stderr
