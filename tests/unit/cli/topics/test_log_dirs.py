import os


def test_json_is_kafkas(filled):
    document = filled.json("log-dirs")
    assert document["version"] == 1
    ((broker,), (directory,)) = document["brokers"], document["brokers"][0]["logDirs"]
    assert (broker["broker"], directory["error"], directory["logDir"]) == (0, None, filled.place)
    sizes = {entry["partition"]: entry["size"] for entry in directory["partitions"]}
    assert sorted(sizes) == ["one-0", "three-0", "three-1", "three-2"]
    assert sizes["one-0"] == sum(file.stat().st_blocks * 512 for file in os.scandir(f"{filled.data_dir}/one-0"))


def test_table_and_total(filled):
    result = filled("log-dirs", "one")
    assert result.stdout.splitlines()[1].split()[0] == "one-0"
    assert "1 partition, " in result.stderr


def test_as_kafka_log_dirs(filled):
    result = filled("log-dirs", "--describe", "--topic-list", "one,three", kafka=True)
    *told, line = result.stdout.splitlines()
    assert told == ["Querying brokers for log directories information", "Received log directory information from brokers 0"]
    assert line.startswith('{"version":1,"brokers":[{"broker":0,"logDirs"')
    unknown = filled.out("log-dirs", "--describe", "--topic-list", "nosuch", kafka=True)
    assert '"partitions":[]' in unknown
    assert "nosuch" in filled("log-dirs", "--topic-list", "nosuch", code=2).stderr
