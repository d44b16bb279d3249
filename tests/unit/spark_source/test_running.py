import logging
import sys

import pytest

from logdb_spark_source import running

IN_TWO_LANGUAGES = """[PYTHON_DATA_SOURCE_ERROR] Failed to create Python data source instance in Python worker:
Traceback (most recent call last):
  File "source.py", line 40, in schema
    raise InvalidConfig("subscribe", "x", "must be names of topics")
logdb.errors.InvalidConfig: subscribe=x: must be names of topics
 SQLSTATE: 38000
\tat org.apache.spark.sql.errors.QueryCompilationErrors$.pythonDataSourceError(QueryCompilationErrors.scala:1)
"""


def test_what_is_wrong_is_said_in_a_sentence():
    assert running._sentence(IN_TWO_LANGUAGES) == "InvalidConfig: subscribe=x: must be names of topics"
    assert running._sentence("[UNRESOLVED_COLUMN] A column cannot be resolved.\nJVM stacktrace:\n\tat …") == (
        "[UNRESOLVED_COLUMN] A column cannot be resolved."
    )


ON_A_WORKER = """Job aborted due to stage failure: Task 0 in stage 1.0 failed 4 times, most recent failure: Lost task 0.3 in stage 1.0 \
(TID 7) (10.0.0.12 executor 1): {java}
{python}
\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:645)

Driver stacktrace:
Caused by: {cause}
\tat org.apache.spark.x.Y(Z.scala:1)
"""
TRACE = 'Traceback (most recent call last):\n  File "worker.py", line 1, in read\n'
PYTHON_EXCEPTION = "org.apache.spark.api.python.PythonException: "


@pytest.mark.parametrize(
    ("java", "python", "cause", "said"),
    [
        (
            PYTHON_EXCEPTION,
            f"{TRACE}ModuleNotFoundError: No module named 'logdb_spark_source'",
            "org.apache.spark.api.python.PythonException: Traceback",
            "on host 10.0.0.12: ModuleNotFoundError: No module named 'logdb_spark_source'. Install logdb with",
        ),
        (
            PYTHON_EXCEPTION,
            f"{TRACE}logdb.errors.NotADatabase: on host a: /db is no database",
            "org.apache.spark.api.python.PythonException: Traceback",
            "NotADatabase: on host a: /db is no database",
        ),
        (
            'java.io.IOException: Cannot run program "/venv/bin/python": error=2, No such file or directory',
            "\tat java.base/java.lang.ProcessBuilder.start(ProcessBuilder.java:1143)",
            "java.io.IOException: error=2, No such file or directory",
            None,
        ),
        (
            "org.apache.spark.SparkException: Python worker failed to connect back.",
            "\tat org.apache.spark.errors.SparkCoreErrors$.failedToConnect(X.scala:1)",
            "java.net.SocketTimeoutException: Timed out while waiting for the Python worker to connect back",
            None,
        ),
    ],
)
def test_a_task_that_fails_on_another_machine_says_host_cause_and_remedy(java, python, cause, said):
    found = running._sentence(ON_A_WORKER.format(java=java, python=python, cause=cause))
    if said is not None:
        assert found.startswith(said)
    else:
        assert found.startswith("on host 10.0.0.12: Job aborted")
        assert f"; caused by {cause}" in found
        assert found.endswith(("name another one by PYSPARK_PYTHON", "start the query again"))


def test_the_innermost_line_of_the_program_is_named():
    code = compile("def f():\n    g()\ndef g():\n    import json\n    json.loads('{')\nf()\n", "program.py", "exec")
    with pytest.raises(ValueError, match="Expecting") as raised:
        exec(code, {})
    assert running._line_of("program.py", raised.value.__traceback__) == "program.py:5"
    assert running._line_of("other.py", raised.value.__traceback__) == "other.py"


def test_arguments_and_imports_are_as_before_when_it_ends(tmp_path):
    argv, path = list(sys.argv), list(sys.path)
    with running._as_main(str(tmp_path / "program.py"), ["-x"]):
        assert sys.argv == [str(tmp_path / "program.py"), "-x"]
        assert sys.path == [str(tmp_path), *path]
    assert (sys.argv, sys.path) == (argv, path)


def test_an_interrupt_is_no_stack_in_the_log_and_other_failures_are(caplog):
    with running._quiet_interrupts():
        for error in (KeyboardInterrupt, ValueError):
            try:
                raise error
            except error:
                logging.exception("%s while sending command.", error.__name__)  # noqa: LOG015 -- as py4j does
    assert [record.getMessage() for record in caplog.records] == ["ValueError while sending command."]
    assert logging.root.filters == []


def test_what_it_is_doing_is_told_on_stderr_alone(capsys):
    running._say("starting Spark")
    assert capsys.readouterr() == ("", "starting Spark\n")
