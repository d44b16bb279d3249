import os
import struct
from pathlib import Path

import pytest
from pyspark import SparkContext
from pyspark.find_spark_home import _find_spark_home

from logdb_spark_source import launch


def java(directory, version):
    """A program that says it is Java, as Java does: on standard error."""
    path = directory / "bin" / "java"
    path.parent.mkdir(parents=True)
    path.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2026-01-01' >&2\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(("version", "will_do"), [("17.0.15", True), ("25", True), ("11.0.2", False), ("1.8.0_292", False)])
def test_the_systems_java_is_used_if_it_is_new_enough(tmp_path, monkeypatch, version, will_do):
    path = java(tmp_path / "jdk", version)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", f"{path.parent}:/bin:/usr/bin")
    assert launch._system_java() is will_do
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    monkeypatch.setenv("PATH", "")
    assert launch._system_java() is will_do
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    assert launch._system_java() is False


def test_private_parts_of_pyspark_are_as_they_are_known(monkeypatch):
    """``start`` asks whether a JVM runs, and where Spark lies; pyspark says both only to itself."""
    monkeypatch.delenv("SPARK_HOME", raising=False)
    assert SparkContext._gateway is None or SparkContext._gateway.jvm is not None
    assert (Path(_find_spark_home()) / "jars").is_dir()


def test_what_is_given_wins_over_what_is_set_here():
    settings = launch._settings({"spark.ui.enabled": "true", "spark.driver.host": "10.0.0.1"})
    assert settings["spark.master"] == "local[*]"
    assert (settings["spark.ui.enabled"], settings["spark.driver.host"]) == ("true", "10.0.0.1")
    assert settings["spark.driver.bindAddress"] == "127.0.0.1"
    assert "spark.driver.bindAddress" not in launch._settings({"spark.master": "spark://somewhere:7077"})


@pytest.mark.parametrize(
    ("given", "partitions"),
    [
        ({}, str(os.cpu_count())),
        ({"spark.master": "local"}, "1"),
        ({"spark.master": "local[3,2]"}, "3"),
        ({"spark.master": "spark://m:7077"}, None),
        ({"spark.master": "spark://m:7077", "spark.cores.max": "24"}, "24"),
        ({"spark.master": "yarn", "spark.executor.instances": "3", "spark.executor.cores": "4"}, "12"),
        ({"spark.master": "local[3]", "spark.sql.shuffle.partitions": "7"}, "7"),
    ],
)
def test_the_partitions_of_a_shuffle_are_the_cores_of_the_executors(given, partitions):
    assert launch._settings(given).get("spark.sql.shuffle.partitions") == partitions


def test_the_environment_is_as_before_afterwards(monkeypatch):
    monkeypatch.setenv("PYSPARK_PYTHON", "mine")
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    with pytest.raises(KeyError), launch._environment(PYSPARK_PYTHON="theirs", PYSPARK_GATEWAY_PORT="5"):
        assert (os.environ["PYSPARK_PYTHON"], os.environ["PYSPARK_GATEWAY_PORT"]) == ("theirs", "5")
        raise KeyError
    assert os.environ["PYSPARK_PYTHON"] == "mine" and "PYSPARK_GATEWAY_PORT" not in os.environ


def test_the_jvm_is_told_what_the_session_is(monkeypatch):
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--name 'a b' pyspark-shell")
    command = launch._command(Path("/jdk/bin/java"), "/spark", {"spark.master": "local[1]", "spark.driver.memory": "2g"})
    assert command[:4] == ["/jdk/bin/java", "-cp", "/spark/jars/*", "-Xmx2g"]
    assert command[-7:] == ["--conf", "spark.master=local[1]", "--conf", "spark.driver.memory=2g", "--name", "a b", "pyspark-shell"]
    assert not [flag for flag in command if "jdk.incubator.vector" in flag]


def test_the_jvm_gets_the_options_that_are_set_here_and_those_that_are_given():
    settings = launch._settings({"spark.driver.extraJavaOptions": "-Done=1 -Dtwo=2"})
    command = launch._command(Path("/jdk/bin/java"), "/spark", settings)
    given = command[command.index("-Done=1") - 2 : command.index("org.apache.spark.deploy.SparkSubmit")]
    assert given == ["-Darrow.enable_unsafe_memory_access=true", "-Darrow.enable_null_check_for_get=false", "-Done=1", "-Dtwo=2"]


def test_port_and_secret_are_read_as_spark_writes_them():
    assert launch._told(struct.pack(">ii", 4711, 6) + b"geheim") == (4711, "geheim")
