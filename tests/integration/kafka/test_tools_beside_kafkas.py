"""Kafka's own command-line tools and ours of the same names, called with the same flags on the same broker: they print the same.

Skipped, with the reason, where Java or Maven are missing.
"""

import json
import re
import shlex
import shutil
from pathlib import Path

import confluent_kafka
import pytest
from click.testing import CliRunner

from logdb.cli.app import arguments, cli
from logdb.cli.terminal.session import Session
from logdb.codec import convert
from logdb.codec.batch import CODEC_MASK
from logdb.model import COMPRESSION_TYPES, OffsetAndMetadata, TopicPartition
from support.kafka_door import kafka_door
from support.kafka_tools import kafka_tools
from support.transactional import Writer

pytestmark = pytest.mark.foreign
SIDES = ("java", "ours")


def ours(tool, *flags, stdin=""):
    words, kafka = arguments(["logdb", tool, *flags])
    done = CliRunner().invoke(cli, words, input=stdin, obj=Session(kafka=kafka), catch_exceptions=False)
    return done.exit_code, done.stdout, done.stderr


@pytest.fixture(scope="module")
def java():
    with kafka_tools() as java:
        yield java


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    with kafka_door(tmp_path_factory.mktemp("tools") / "db") as served:
        yield served


@pytest.fixture(scope="module")
def filled(served):
    """Topics ``one`` and ``three``; for each side ``p-…`` and ``c-…``, which are empty, and ``h-…``; a group with a member."""
    db = served.db
    db.create_topic("one")
    db.create_topic("three", partitions=3, config={"segment.bytes": 4096})
    for name in (f"{kind}-{side}" for kind in "pch" for side in SIDES):
        db.create_topic(name)
    for side in SIDES:
        db.log(f"h-{side}").append_many([b"%d" % number for number in range(5)])
    db.log("one").append_many([b"%d" % number for number in range(100)])
    for partition in range(3):
        for number in range(10):
            stamp = 1_700_000_000_000 + partition * 10 + number
            headers = [("h", b"%d" % number)]
            db.log("three", partition).append(b"v%d" % number, key=b"k%d" % number, headers=headers, timestamp_ms=stamp)
    member = confluent_kafka.Consumer({
        "bootstrap.servers": served.address,
        "group.id": "live",
        "client.id": "member",
        "auto.offset.reset": "earliest",
    })  # fmt: skip
    member.subscribe(["three"])
    while member.poll(20) is None:
        pass
    member.commit(asynchronous=False)
    yield served
    member.close()


def told(output):
    """What both print: without what has a reason to be different.

    These are: names of the sides; the order of lines, which is that of a hash map; ``Elr``, which a broker tells that answers
    DescribeTopicPartitions; that ``--property`` is deprecated, which it is not here; the seven days that Kafka's clients give a topic;
    ids of topics that a side made; how long a transaction has been open.
    """
    for side in SIDES:
        output = output.replace(side, "SIDE")
    output = output.replace("N/A", "").replace("Configs: retention.ms=604800000", "Configs: ")
    output = re.sub(r"Configs: (.*)", lambda found: f"Configs: {sorted(found[1].split(','))}", output)
    output = re.sub(r"(Topic: \S*SIDE\S*\tTopicId: )\S+", r"\1", output)
    output = re.sub(r"(\d{13} {16}\t)\d+ +\t", r"\1MS\t", output)
    return sorted(line for line in output.splitlines() if "is deprecated and will be removed" not in line)


def placeless(output):
    """Of a cluster: without the places, and the coordinators, of what a side made, which are its own."""
    output = re.sub(r"(Topic: \S*(?:java|ours)\S*\tPartition: \d+\t)Leader: .*", r"\1", output)
    output = re.sub(r"^\d( +\tf-(?:java|ours))", r"\1", output, flags=re.MULTILINE)
    return re.sub(r"^(h-(?:java|ours) +)\S+ +\(\d+\) +", r"\1", output, flags=re.MULTILINE)


@pytest.fixture
def differences(java, filled, tmp_path):
    """Call both sides, line by line; what they print and end with where that differs."""

    def differences(story, *more, served=filled, tool=""):
        found = []
        for line in story.strip().splitlines():
            call, _, stdin = f"{tool} {line}".partition(" <<< ")
            outcomes = []
            for side, run in zip(SIDES, (java, ours), strict=True):
                name, *flags = shlex.split(call.replace("{us}", side).replace("{dir}", str(tmp_path)))
                where = [] if name == "kafka-dump-log" else ["--bootstrap-server", served.address, *more]
                code, out, _ = run(name, *where, *flags, stdin=stdin.encode().decode("unicode_escape"))
                if len(served.nodes) > 1:
                    out = placeless(out)
                outcomes.append((code == 0, told(out)))
            theirs, own = outcomes
            if theirs != own:
                found.append((line, theirs, own))
        return found

    return differences


def test_topics(differences):
    assert not differences("""
kafka-topics --list
kafka-topics --create --topic made-{us} --partitions 1
kafka-topics --create --topic dots.{us}_x --partitions 2 --replication-factor 1 --config retention.ms=5000
kafka-topics --create --topic made-{us} --if-not-exists
kafka-topics --list --exclude-internal
kafka-topics --describe --topic three
kafka-topics --describe
kafka-topics --describe --topic none --if-exists
kafka-topics --describe --topic thr.*
kafka-topics --describe --under-replicated-partitions
kafka-topics --describe --at-min-isr-partitions
kafka-topics --describe --unavailable-partitions --topic three
kafka-topics --describe --topics-with-overrides --topic three
kafka-topics --alter --topic made-{us} --partitions 3
kafka-topics --describe --topic made-{us}
kafka-topics --alter --topic none --partitions 3 --if-exists
kafka-topics --create --topic placed-{us} --replica-assignment 0,0
kafka-topics --create --topic wrong-{us} --replica-assignment 0 --partitions 1
kafka-topics --describe --topic placed-{us}
kafka-topics --delete --topic placed-{us}
kafka-topics --delete --topic made-{us}
kafka-topics --delete --topic dots.{us}_x
kafka-topics --delete --topic none --if-exists
kafka-topics --list --topic three
kafka-topics --list --topic zz.*
""")


def test_topics_by_id(java, filled):
    described = ours("kafka-topics", "--bootstrap-server", filled.address, "--describe", "--topic", "three")[1]
    topic_id = re.search(r"TopicId: (\S+)", described)[1]
    assert ours("kafka-topics", "--bootstrap-server", filled.address, "--describe", "--topic-id", topic_id)[1] == described
    theirs = java("kafka-topics", "--bootstrap-server", filled.address, "--describe", "--topic-id", topic_id)
    assert told(theirs[1]) == told(described)


def test_offsets(differences):
    assert not differences("""
kafka-get-offsets --topic three
kafka-get-offsets --topic three --time -1
kafka-get-offsets --topic three --time -2
kafka-get-offsets --topic three --time -3
kafka-get-offsets --topic three --time -4
kafka-get-offsets --topic three --time -5
kafka-get-offsets --topic three --time latest
kafka-get-offsets --topic three --time earliest
kafka-get-offsets --topic three --time max-timestamp
kafka-get-offsets --topic three --time earliest-local
kafka-get-offsets --topic three --time latest-tiered
kafka-get-offsets --topic three --time 1700000000005
kafka-get-offsets --topic three --time 9999999999999
kafka-get-offsets --topic three --partitions 0,2
kafka-get-offsets --topic-partitions three:0-2,one
kafka-get-offsets --topic-partitions three:1-
kafka-get-offsets --topic-partitions three:-2
kafka-get-offsets --topic-partitions :0,three:2
kafka-get-offsets --topic th.*
kafka-get-offsets --topic none
kafka-get-offsets --exclude-internal-topics
""")


def test_the_order_of_offsets(java, filled):
    flags = "--bootstrap-server", filled.address, "--topic-partitions", "three:0-2,one"
    assert ours("kafka-get-offsets", *flags)[1] == java("kafka-get-offsets", *flags)[1] == "one:0:100\nthree:0:10\nthree:1:10\n"


def test_sizes(java, filled):
    for more in ([], ["--topic-list", "three"], ["--topic-list", "three,one", "--broker-list", "0"], ["--topic-list", "none"]):
        found = []
        for run in (java, ours):
            code, out, _ = run("kafka-log-dirs", "--bootstrap-server", filled.address, "--describe", *more)
            *head, line = out.splitlines()
            document = json.loads(line)
            (place,) = document["brokers"][0]["logDirs"]
            place["partitions"].sort(key=lambda one: one["partition"])
            assert place.pop("logDir")  # HTTP tells an address
            found.append((code, head, document))
        assert found[0] == found[1]


def test_console(differences):
    assert not differences(r"""
kafka-console-producer --topic p-{us} <<< a\nb\n
kafka-console-consumer --topic p-{us} --from-beginning --max-messages 2
kafka-console-consumer --topic three --partition 0 --offset 2 --max-messages 3
kafka-console-consumer --topic three --partition 0 --offset earliest --max-messages 3 --property print.key=true --property print.timestamp=true --property print.headers=true --property print.offset=true --property print.partition=true
kafka-console-consumer --topic three --partition 0 --offset earliest --max-messages 2 --formatter-property print.value=false --formatter-property print.key=true
kafka-console-consumer --topic three --partition 0 --offset earliest --max-messages 2 --formatter-property print.key=true --formatter-property key.separator=: --formatter-property line.separator=;
kafka-console-producer --topic p-{us} --reader-property parse.key=true --reader-property key.separator=: --reader-property null.marker=NIL <<< k:v\nk:NIL\n
kafka-console-producer --topic p-{us} --property parse.key=true --property parse.headers=true <<< h:1,i:2\tk\tv\n
kafka-console-consumer --topic p-{us} --from-beginning --max-messages 5 --property print.key=true --property print.headers=true --property null.literal=NIL
kafka-console-producer --topic p-{us} --property parse.key=true <<< nokey\n
kafka-console-producer --topic p-{us} --compression-codec zstd --sync --batch-size 5 --request-required-acks all <<< z\n
kafka-console-consumer --topic p-{us} --group g-{us} --from-beginning --max-messages 3
kafka-console-consumer --topic p-{us} --group g-{us} --max-messages 1
kafka-console-consumer --include p-{us} --from-beginning --max-messages 2
kafka-console-consumer --topic three --partition 0 --offset latest --timeout-ms 100
kafka-consumer-groups --describe --group g-{us}
kafka-console-producer --topic c-{us} --property parse.key=true <<< k\tv\r\nbad\r\nl\tw\r\n
kafka-console-consumer --topic c-{us} --partition 0 --offset 0 --timeout-ms 3000 --property print.key=true
kafka-console-consumer --topic c-{us} --partition 0 --offset 99 --timeout-ms 2000
""")  # noqa: E501 - a line is a call


def test_groups(differences):
    assert not differences("""
kafka-console-consumer --topic h-{us} --group h-{us} --from-beginning --max-messages 1
kafka-consumer-groups --list --state stable
kafka-consumer-groups --list --type classic --state Stable
kafka-consumer-groups --list --type consumer
kafka-consumer-groups --describe --group h-{us}
kafka-consumer-groups --describe --group live --offsets --verbose
kafka-consumer-groups --describe --group h-{us} --state
kafka-consumer-groups --describe --group h-{us} --state --verbose
kafka-consumer-groups --describe --group h-{us} --members
kafka-consumer-groups --describe --group h-{us} --members --verbose
kafka-consumer-groups --describe --group live --offsets
kafka-consumer-groups --describe --group live --members
kafka-consumer-groups --describe --group live --members --verbose
kafka-consumer-groups --describe --group live --state
kafka-consumer-groups --describe --group live --state --verbose
kafka-consumer-groups --reset-offsets --group h-{us} --topic h-{us} --to-earliest
kafka-consumer-groups --reset-offsets --group h-{us} --topic h-{us} --to-earliest --execute
kafka-consumer-groups --reset-offsets --group h-{us} --topic h-{us} --shift-by 2 --execute
kafka-consumer-groups --reset-offsets --group h-{us} --all-topics --to-latest --execute
kafka-consumer-groups --reset-offsets --group h-{us} --topic h-{us} --to-offset 1 --execute --export
kafka-consumer-groups --reset-offsets --group h-{us} --topic h-{us} --by-duration P1D --dry-run
kafka-consumer-groups --reset-offsets --group h-{us} --topic h-{us} --to-current --dry-run
kafka-consumer-groups --reset-offsets --group h-{us} --topic h-{us}:0 --to-offset 99 --dry-run
kafka-consumer-groups --delete-offsets --group h-{us} --topic three
kafka-consumer-groups --delete --group h-{us}
""")


def test_configs_of_topics(differences):
    assert not differences("""
kafka-configs --describe --entity-type topics --entity-name three
kafka-configs --describe --topic three --all
kafka-configs --describe --entity-type topics
kafka-configs --describe --topic none
kafka-configs --alter --topic c-{us} --add-config retention.ms=7000,cleanup.policy=[compact,delete]
kafka-configs --describe --topic c-{us}
kafka-configs --alter --topic c-{us} --delete-config retention.ms
kafka-configs --describe --topic c-{us}
kafka-configs --alter --topic none --add-config retention.ms=7
kafka-configs --alter --topic c-{us} --add-config nonsense=7
kafka-configs --alter --topic c-{us}
""")


@pytest.fixture
def guarded(tmp_path):
    with kafka_door(tmp_path / "guarded") as served:
        served.db.security.add_user("admin", "admin-secret", super_user=True)
        yield served


def test_configs_of_brokers_and_users(differences, guarded, tmp_path):
    jaas = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="admin" password="admin-secret";'
    path = tmp_path / "client.properties"
    path.write_text(f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-512\nsasl.jaas.config={jaas}\n")
    (tmp_path / "quota.properties").write_text("producer_byte_rate=4096\n")
    assert not differences(
        """
kafka-configs --describe --entity-type brokers --entity-name 0
kafka-configs --describe --broker 0
kafka-configs --describe --entity-type brokers
kafka-configs --describe --entity-type brokers --entity-default
kafka-configs --describe --broker-defaults
kafka-configs --describe --entity-type brokers --entity-name 7
kafka-configs --alter --entity-type brokers --entity-name 0 --add-config log.cleaner.threads=2
kafka-configs --alter --entity-type users --entity-name u-{us} --add-config producer_byte_rate=1024,consumer_byte_rate=2048
kafka-configs --describe --entity-type users --entity-name u-{us}
kafka-configs --describe --user u-{us}
kafka-configs --alter --entity-type users --entity-name u-{us} --delete-config consumer_byte_rate
kafka-configs --alter --user u-{us} --delete-config consumer_byte_rate
kafka-configs --alter --user u-{us} --add-config-file {dir}/quota.properties
kafka-configs --describe --entity-type users
kafka-configs --alter --entity-type users --entity-default --add-config producer_byte_rate=1000
kafka-configs --describe --entity-type users --entity-default
kafka-configs --describe --user-defaults
kafka-configs --alter --user s-{us} --add-config SCRAM-SHA-256=[iterations=8192,password=secret],SCRAM-SHA-512=[password=secret]
kafka-configs --describe --entity-type users --entity-name s-{us}
kafka-configs --alter --user s-{us} --delete-config SCRAM-SHA-256
kafka-configs --describe --user s-{us}
kafka-configs --alter --user s-{us} --add-config nonsense=1
kafka-configs --describe --entity-type clients --entity-name c1
kafka-configs --describe --client c1
kafka-configs --alter --entity-type clients --entity-name c1 --add-config producer_byte_rate=1024
kafka-configs --describe --entity-type ips --entity-name 127.0.0.1
""",
        "--command-config",
        str(path),
        served=guarded,
    )


@pytest.fixture
def transacted(tmp_path):
    """Transactions of ``done`` and ``open``, and for each side one of ``f-…``; a producer without one."""
    with kafka_door(tmp_path / "transacted") as served:
        db = served.db
        db.create_topic("t", partitions=2)
        with db.transaction("done") as transaction:
            transaction.send("t", b"v", partition=0)
        for name, partition in (("open", 1), *((f"f-{side}", 0) for side in SIDES)):
            Writer(db._session, name).write(TopicPartition("t", partition), b"v")
        with db.producer() as producer:
            producer.send("t", b"v", partition=1)
        yield served


def test_transactions(differences, transacted):
    assert not differences(
        """
list
list --duration-filter 0
list --duration-filter 600000
list --duration-filter -1
list --duration-filter x
describe --transactional-id done
describe --transactional-id open
describe --transactional-id none
describe
describe-producers --topic t --partition 0
describe-producers --topic t --partition 1
describe-producers --topic t
find-hanging
find-hanging --topic t
find-hanging --topic none
find-hanging --topic t --partition 1 --max-transaction-timeout -1
find-hanging --broker-id 9
find-hanging --broker-id 0 --max-transaction-timeout -1
find-hanging --broker-id 0 --partition 1
abort --topic t --partition 0
abort --topic t --partition 0 --producer-id 1 --producer-epoch 0
abort --topic t --partition 0 --start-offset 77
abort --topic t --partition 1 --start-offset 0
forceTerminateTransaction
forceTerminateTransaction --transactionalId f-{us}
bogus
""",
        served=transacted,
        tool="kafka-transactions",
    )


def test_transactions_that_are_ended(java, transacted):
    states = []
    for side, run in zip(SIDES, (java, ours), strict=True):
        call = "kafka-transactions", "--bootstrap-server", transacted.address
        assert run(*call, "forceTerminateTransaction", "--transactionalId", f"f-{side}") == (0, "", "")
        code, out, _ = run(*call, "describe", "--transactional-id", f"f-{side}")
        states.append((code, told(re.sub(r"\d{16,}", "ID", placeless(out)))))
    assert states[0] == states[1]
    assert [one.first_offset for one in transacted.db._session.log("t", 0).producers() if one.first_offset >= 0] == []


@pytest.mark.parametrize("flags", [[], ["--bootstrap-server", "127.0.0.1:1"]])
def test_transactions_without_a_subcommand(java, flags):
    assert ours("kafka-transactions", *flags) == java("kafka-transactions", *flags)


def test_dumps(differences, filled, topic, tmp_path):
    """The flags, on a log whose index is empty; tests/compat has whole indexes.  Of control characters ours shows escapes."""
    db = filled.db
    db.create_topic(topic)
    with db.transaction("t") as transaction:
        transaction.send(topic, b"eight of", b"k")
    for number in range(4):
        db.log(topic).append_many([b"seven b" + bytes([65 + number])] * 3, timestamps_ms=[1_700_000_000_000 + number] * 3)
        db.flush()
    log = f"{0:020d}.log"
    shutil.copy(f"{db.path}/{topic}-0/{log}", tmp_path)
    (tmp_path / log).with_suffix(".index").touch()
    assert not differences(f"""
kafka-dump-log --files {{dir}}/{log}
kafka-dump-log --files {{dir}}/{log},{{dir}}/{0:020d}.index
kafka-dump-log --files {{dir}}/{0:020d}.index --index-sanity-check
kafka-dump-log --files {{dir}}/{log} --deep-iteration
kafka-dump-log --files {{dir}}/{log} --print-data-log
kafka-dump-log --files {{dir}}/{log} --print-data-log --skip-record-metadata
kafka-dump-log --files {{dir}}/{log} --max-bytes 300
kafka-dump-log --files {{dir}}/{log} --value-decoder-class org.apache.kafka.tools.api.LongDecoder
kafka-dump-log --files {{dir}}/{log} --key-decoder-class
""")


def test_dumps_of_coordinators(differences, filled, topic, tmp_path):
    """Groups with a member, without and deleted, offsets in a transaction and outside, a transactional id in each of its states."""
    db = filled.db
    forgotten, gone = f"{topic}-forgotten", f"{topic}-gone"
    db.create_topic(topic, partitions=2)
    with db.consumer(group_id=gone) as consumer:
        consumer.assign([(topic, 0)])
        consumer.seek((topic, 0), 0)
        consumer.commit()
    db.delete_group(gone)
    db.create_topic(forgotten)
    db.log(forgotten).append(None, key=(0).to_bytes(2, "big") + (2).to_bytes(2, "big") + b"id")
    with db.consumer(group_id=topic, group_instance_id="i") as consumer, db.producer(transactional_id=topic) as producer:
        consumer.subscribe(topic)
        consumer.poll(timeout_ms=100)
        consumer.commit()
        producer.begin_transaction()
        producer.send(topic, b"v")
        producer.send_offsets_to_transaction({TopicPartition(topic, 0): OffsetAndMetadata(0)}, consumer.group_metadata())
        producer.commit_transaction()
    db.flush()
    commands, log = [], f"{0:020d}.log"
    for internal, option in (("__consumer_offsets", "--offsets-decoder"), ("__transaction_state", "--transaction-log-decoder")):
        for file in Path(db.path).glob(f"{internal}-*/{log}"):
            shutil.copytree(file.parent, tmp_path / file.parent.name)
            commands.append(f"kafka-dump-log --files {{dir}}/{file.parent.name}/{log} {option}")
    assert len(commands) >= 2
    shutil.copytree(Path(db.path) / f"{forgotten}-0", tmp_path / f"{forgotten}-0")
    commands.append(f"kafka-dump-log --files {{dir}}/{forgotten}-0/{log} --transaction-log-decoder")
    assert not differences("\n".join(commands))


@pytest.mark.parametrize("codec", COMPRESSION_TYPES)
def test_records_of_java_in_each_codec(java, filled, topic, codec):
    where = "--bootstrap-server", filled.address
    filled.db.create_topic(topic)
    reader = [f"--reader-property={one}" for one in ("parse.key=true", "parse.headers=true", "null.marker=NIL")]
    lines = "h:1,i:2\tk\tv\nh:3\tk\tNIL\n" + "".join(f"h:4\tk{number}\t{'x' * 100}\n" for number in range(100))
    assert java("kafka-console-producer", *where, "--topic", topic, "--compression-codec", codec, *reader, stdin=lines)[0] == 0
    log = filled.db.log(topic)
    records = list(log.read(0))
    assert [(one.key, one.value, list(one.headers)) for one in records[:2]] == [
        (b"k", b"v", [("h", b"1"), ("i", b"2")]),
        (b"k", None, [("h", b"3")]),
    ]
    assert {COMPRESSION_TYPES[header.attributes & CODEC_MASK] for _, header in convert.headers(log.read_batches(0)[0])} == {codec}
    shown = [f"--formatter-property={one}" for one in ("print.key=true", "print.headers=true", "print.timestamp=true", "null.literal=NIL")]
    _, out, _ = java("kafka-console-consumer", *where, "--topic", topic, "--from-beginning", "--max-messages", "102", *shown)
    stamps = (f"CreateTime:{one.timestamp_ms}\t" for one in records)
    assert out.splitlines() == [stamp + line for stamp, line in zip(stamps, lines.splitlines(), strict=True)]


def test_kafka_producer_perf_test(java, filled, topic):
    filled.db.create_topic(topic)
    load = "--num-records", "1000", "--record-size", "100", "--throughput", "-1"
    code, out, _ = java("kafka-producer-perf-test", "--bootstrap-server", filled.address, "--topic", topic, *load)
    assert (code, out.startswith("1000 records sent, ")) == (0, True)
    assert filled.db.log(topic).end_offset == 1000
