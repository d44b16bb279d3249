"""``logdb spark``: runs programs on Spark; an entry point of the group ``logdb.spark`` does it."""

import click

from logdb.announced import announced
from logdb.cli.terminal.output import warn
from logdb.cli.terminal.params import PAIR
from logdb.cli.terminal.session import Session, pass_session


@click.group(short_help="Run programs on Spark.")
def spark() -> None:
    """Run programs on Apache Spark, with format("logdb") to read and write logdb. Needs the package pyspark."""


@spark.command(short_help="Run a Python program on Spark.", context_settings={"allow_interspersed_args": False})
@click.option("--master", metavar="URL", help="Where Spark runs: local[4], spark://host:7077.  [default: all cores of this machine]")
@click.option("--conf", "config", type=PAIR, multiple=True, help="A setting of Spark's, KEY=VALUE; repeatable.")
@click.argument("program", metavar="PROGRAM", type=click.Path(exists=True, dir_okay=False))
@click.argument("arguments", metavar="[ARGUMENTS]...", nargs=-1, type=click.UNPROCESSED)
@pass_session
def run(session: Session, /, master: str | None, config: tuple[tuple[str, str], ...], program: str, arguments: tuple[str, ...]) -> None:
    """Run a Python PROGRAM with its ARGUMENTS, with Java and a Spark session that has format("logdb").

    The program gets the session by logdb_spark_source.session() or by SparkSession.builder.getOrCreate(). The exit code is
    the program's, or 1 after a failure of Spark.
    """
    runner = announced("logdb.spark")["run"].load()
    failure: str | None = runner(program, arguments, master=master, config=dict(config))
    if failure is not None:
        warn(failure)
        session.exit_code = 1
