"""The command itself: its verbs, its help, and the messages of errors.  A verb's module is imported when the verb is called."""

import difflib
import importlib
import os
import re
import signal
import sys
from collections.abc import Sequence
from types import FrameType
from typing import Any

import click

from logdb.cli.kafka import kafka_tools
from logdb.cli.kafka.kafka_tools import KAFKA_TOOLS, MODES
from logdb.cli.terminal import logs
from logdb.cli.terminal.output import emit_error, say, warn
from logdb.cli.terminal.session import Session, exit_code_of, root
from logdb.errors import LogdbError, missing_package

# title of the section in the help -> verb -> "room.module:command"
SECTIONS: dict[str, dict[str, str]] = {
    "Topics and records": {
        "topics": "topics.topics:topics",
        "list": "topics.topics:list_topics",
        "produce": "records.produce:produce",
        "consume": "records.consume:consume",
        "import": "records.transfer:import_",
        "export": "records.transfer:export",
        "offsets": "records.offsets:offsets",
        "top": "topics.top:top",
        "configs": "topics.configs:configs",
        "delete-records": "topics.delete_records:delete_records",
        "enforce-retention": "topics.enforce_retention:enforce_retention",
        "compact": "topics.compact:compact",
        "iceberg": "topics.iceberg:iceberg",
        "parquet": "topics.parquet:parquet",
    },
    "Groups and transactions": {
        "groups": "groups.groups:groups",
        "transactions": "groups.transactions:transactions",
    },
    "Who may do what": {
        "users": "access.users:users",
        "acls": "access.acls:acls",
        "tokens": "access.tokens:tokens",
    },
    "Look inside, check, mend": {
        "log-dirs": "topics.log_dirs:log_dirs",
        "dump": "offline.dump:dump",
        "verify": "offline.check:verify",
        "repair": "offline.check:repair",
    },
    "Copies": {
        "snapshot": "offline.backup:snapshot",
        "backup": "offline.backup:backup",
        "restore": "offline.backup:restore",
    },
    "Server": {
        "serve": "serving.serve:serve",
    },
    "Cluster": {
        "cluster": "clusters.cluster:cluster",
        "quorum": "clusters.cluster:quorum",
        "brokers": "clusters.cluster:brokers",
        "mirror": "clusters.mirror:mirror",
        "partitions": "clusters.partitions:partitions",
    },
    "Data in and out": {
        "connect": "tools.connect:connect",
    },
    "Tools": {
        "spark": "tools.spark:spark",
        "bench": "tools.bench:bench",
        "completion": "tools.completion:completion",
        "version": "tools.helping:version",
        "help": "tools.helping:help_",
        "kafka-links": "kafka.kafka_links:kafka_links",
    },
}
VERBS = {verb: place for verbs in SECTIONS.values() for verb, place in verbs.items()}
_ALIASES = {"ls": "list"}  # the help does not name them
# Kafka's tools that no verb has the flags of, or that have nothing to do here; the help does not name them.
_TOOLS_ALONE = {
    "connect-distributed": "tools.connect:distributed",
    "connect-standalone": "tools.connect:standalone",
    "kafka-transactions": "kafka.transactions_as_kafka:kafka_transactions",
    "kafka-storage": "kafka.kafka_needless:kafka_storage",
    "zookeeper-server-start": "kafka.kafka_needless:zookeeper_server_start",
}

# The feature that needs a package of an extra.
_EXTRAS = {"aiohttp": "a server", "h11": "a URL", "msgspec": "a server", "pyspark": "Spark", "pysyncobj": "a cluster"}

FIRST_STEPS = """\
export LOGDB_DATA_DIR=events
logdb topics create clicks --partitions 3
echo 'user-7:hello' | logdb produce clicks --key-separator :
logdb consume clicks --follow"""


class Terminated(KeyboardInterrupt):
    """SIGTERM: ends a call as Ctrl-C does, so that everything is closed."""


class Root(click.Group):
    """``logdb``: imports a verb's module when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        place = VERBS.get(_ALIASES.get(cmd_name, cmd_name)) or _TOOLS_ALONE.get(cmd_name)
        if place is None:
            return None
        module, _, name = place.partition(":")
        command = getattr(importlib.import_module(f"logdb.cli.{module}"), name)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in (VERBS | _ALIASES | _TOOLS_ALONE) and not args[0].startswith("-") and not ctx.resilient_parsing:
            if (instead := kafka_tools.NOT_HERE.get(args[0].removesuffix(".sh"))) is not None:
                ctx.fail(f"logdb has no {args[0]}: {instead}")
            near = difflib.get_close_matches(args[0], VERBS, n=1)
            hint = f"did you mean {near[0]!r}?" if near else "see 'logdb --help'."
            ctx.fail(f"No such command {args[0]!r}: {hint}")
        return super().resolve_command(ctx, args)

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        try:
            return super().make_context(*args, **extra)
        except KeyboardInterrupt as interrupt:  # click would treat it as a failure
            sys.exit(_code_of(interrupt, follows=False))
        except click.ClickException as error:
            _show_refusal(error, as_json=len(args) > 1 and "--json" in args[1])
            sys.exit(error.exit_code)

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        def heading(text: str) -> str:
            return click.style(text, bold=True)

        formatter.write(f"{heading('logdb')}: a log database in a directory, or behind a URL. Topics, partitions and offsets.\n\n")
        formatter.write(f"{heading('Usage:')} logdb [--data-dir DIR | -b URL] COMMAND [OPTIONS]\n")
        for title, verbs in SECTIONS.items():
            with formatter.section(heading(title)):
                rows = []
                for verb in verbs:
                    command = self.get_command(ctx, verb)
                    assert command is not None
                    rows.append((click.style(f"{verb:<12}", fg="cyan"), command.get_short_help_str()))
                formatter.write_dl(rows)
        with formatter.section(heading("First steps")):
            for line in FIRST_STEPS.splitlines():
                formatter.write(f"  {click.style('$', fg='bright_black')} {line}\n")
        click.Command.format_options(self, ctx, formatter)  # the group's own method would list the verbs again
        with formatter.section(heading("Exit codes")):
            formatter.write("  0 done · 1 failed, or damage found · 2 a wrong or refused call · 130 Ctrl-C · 143 SIGTERM\n")

    def invoke(self, ctx: click.Context) -> None:
        session = ctx.ensure_object(Session)
        as_json = session.as_json or "--json" in ctx.args  # after an error in its options the verb did not set it
        try:
            with logs.words():
                super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            _drop_output()  # the reader of the output has closed it: no failure
        except KeyboardInterrupt as interrupt:
            session.exit_code = _code_of(interrupt, follows=session.follows)
        except click.ClickException as error:
            _show_refusal(error, as_json=as_json)
            session.exit_code = error.exit_code
        except LogdbError as error:
            _show(error, str(error), as_json=as_json)
            session.exit_code = exit_code_of(error)
        except OSError as error:
            _show(error, str(error) if as_json else _said(error), as_json=as_json)
            session.exit_code = 1
        except ModuleNotFoundError as error:
            package = (error.name or "").partition(".")[0]
            if package not in _EXTRAS:
                raise
            _show(error, str(missing_package(_EXTRAS[package], package)), as_json=as_json)
            session.exit_code = 1
        if session.exit_code:
            ctx.exit(session.exit_code)


def _code_of(interrupt: KeyboardInterrupt, *, follows: bool) -> int:
    """The exit code after a signal; ``follows``: the call normally ends by SIGTERM."""
    if isinstance(interrupt, Terminated):
        return 0 if follows else 128 + signal.SIGTERM
    return 128 + signal.SIGINT


def _said(error: OSError) -> str:
    """The system's message with the file name, without the error number."""
    return ": ".join(map(str, (part for part in (error.strerror, error.filename, error.filename2) if part))) or str(error)


_HELP_ASKED: tuple[type[click.ClickException], ...] = (
    (click.exceptions.NoArgsIsHelpError,) if hasattr(click.exceptions, "NoArgsIsHelpError") else ()  # click before 8.2 prints by itself
)


_EXTRA = re.compile(r"Got unexpected extra argument \((.*)\)")  # click's
_NO_COMMAND = re.compile(r"No such command '(\S+)'\.")  # click's, where it knows no similar one


def _show_refusal(error: click.ClickException, *, as_json: bool) -> None:
    """Print why the command line was refused, in the form of other errors, behind the usage of the verb."""
    if isinstance(error, _HELP_ASKED) and not as_json:
        error.show()  # the help, with its lines
        return
    context = error.ctx if isinstance(error, click.UsageError) else None
    if context is not None and not as_json:
        say(*context.get_usage().splitlines())
        say(f"Try '{context.command_path} --help' for help.", "")
    if (place := _EXTRA.fullmatch(error.format_message())) and os.path.isdir(place[1]):
        error.add_note(f"to name a database: --data-dir {place[1]}")
    message = " ".join(error.format_message().split())  # click breaks lines before a list of choices
    if (word := _NO_COMMAND.fullmatch(message)) and context is not None and isinstance(context.command, click.Group):
        verbs = context.command.list_commands(context)
        near = [verb for verb in verbs if verb.startswith(word[1])]
        message += f" Did you mean {near[0]!r}?" if near else f" Commands are {', '.join(verbs)}."
    _show(error, message, as_json=as_json)


def _show(error: Exception, message: str, *, as_json: bool) -> None:
    """Print the error to stderr: as text, or as JSON with its class and its numbers."""
    notes = list(getattr(error, "__notes__", ()))
    if not as_json:
        warn("; ".join([message, *notes]))
        return
    carried = vars(error) if isinstance(error, LogdbError) else {}
    fields = {name: value for name, value in carried.items() if not name.startswith("_")}
    emit_error({"error": type(error).__name__, "message": message, "fields": fields, "notes": notes})


def _drop_output() -> None:
    """Discard Python's output buffer, or the exit would fail again."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


@click.group(cls=Root, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@root
@click.version_option(package_name="logdb", message="logdb %(version)s")
def cli() -> None:
    """The root of all verbs; ``Root`` writes its help."""


def arguments(argv: Sequence[str]) -> tuple[list[str], bool]:
    """The arguments with the verb first, and whether the command was called by the name of one of Kafka's tools.

    ``kafka-topics.sh --list`` and ``logdb kafka-topics --list`` become ``topics --list``, ``logdb -C -t t`` becomes ``consume -t t``.
    Each of Kafka's tools has ``--version``, at any place: it is that of ``logdb``.
    """
    for position, word in enumerate(argv[:2]):
        name = os.path.basename(word).removesuffix(".sh")
        if name in KAFKA_TOOLS:
            given = argv[position + 1 :]
            return ["--version"] if "--version" in given else [KAFKA_TOOLS[name], *kafka_tools.translated(name, given)], True
    if len(argv) > 1 and argv[1] in MODES:
        return [*MODES[argv[1]], *argv[2:]], False
    return list(argv[1:]), False


def _terminate(_signal: int, _frame: FrameType | None) -> None:
    raise Terminated


def run(argv: Sequence[str]) -> None:
    """Run one call and exit the process."""
    args, kafka = arguments(argv)
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:  # not ignored, as for background jobs of a shell
        signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, _terminate)
    try:
        cli.main(args=args, prog_name="logdb", obj=Session(kafka=kafka))
    finally:  # everything is closed: later signals end Python without a message
        for number in (signal.SIGINT, signal.SIGTERM):
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, signal.SIG_DFL)
