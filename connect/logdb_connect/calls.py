"""The commands of ``logdb connect`` that call a worker's REST API."""

import base64
import functools
import json
import os
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from typing import Any, NoReturn

import click

from logdb.cli.terminal.output import asked, counted, emit, say, table
from logdb.cli.terminal.session import Function, Session, here, pass_session
from logdb_connect.errors import ConnectError
from logdb_connect.properties import read_connector
from logdb_connect.runtime.settings import PREFIXES

URL_VARIABLE, PASSWORD_VARIABLE = "LOGDB_CONNECT", "LOGDB_PASSWORD"
DEFAULT_URL = "http://127.0.0.1:8083"
_TIMEOUT_S = 100
_FILE = click.Path(dir_okay=False)

_OF_CONNECTORS = ("source.", "target.", "spark.")
"""Properties that mirrors hand on to their clients, and sinks to Spark."""


class Api:
    """Calls of one worker."""

    def __init__(self, url: str, user: str | None, cafile: str | None) -> None:
        self._url = (url if "://" in url else f"http://{url}").rstrip("/")
        self._headers = {"Content-Type": "application/json"}
        self._cafile = cafile
        if user is not None:
            password = os.environ.get(PASSWORD_VARIABLE) or asked(f"Password of {user}")
            self._headers["Authorization"] = f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"

    def call(self, method: str, path: str, document: Any = None) -> Any:
        """The JSON of an answer.

        Raises:
            click.ClickException: The worker does not answer, or refuses the call.
        """
        data = None if document is None else json.dumps(document).encode()
        try:
            request = urllib.request.Request(self._url + path, data=data, method=method, headers=self._headers)  # noqa: S310 -- the user's
            with urllib.request.urlopen(request, timeout=_TIMEOUT_S, context=self._tls()) as answer:  # noqa: S310 -- as above
                content = answer.read()
        except urllib.error.HTTPError as error:
            _refused(error)
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", error)
            raise click.ClickException(
                f"no worker answers at {self._url}: {reason}; --url names one, 'logdb connect standalone' starts one"
            ) from None
        return json.loads(content) if content else None

    def _tls(self) -> Any:
        if self._cafile is None:
            return None
        import ssl

        return ssl.create_default_context(cafile=self._cafile)


def _refused(error: urllib.error.HTTPError) -> NoReturn:
    with error:
        content = error.read()
    try:
        message = json.loads(content)["message"]
    except (ValueError, KeyError, TypeError):
        message = f"HTTP {error.code} {error.reason}"
    again = "; a retry is safe" if error.code == 409 and "exists" not in message else ""
    raise click.ClickException(f"{message}{again}")


def remote(function: Function) -> Function:
    """Give a command ``api``, and the option that names a worker."""

    @functools.wraps(function)
    def with_api(session: Session, /, *args: Any, url: str, **options: Any) -> Any:
        return function(session, *args, api=Api(url, session.servers.user, session.servers.ca_file), **options)

    named = click.option("--url", metavar="URL", default=DEFAULT_URL, envvar=URL_VARIABLE, show_default=True, help="A worker's REST API.")
    return here(named(pass_session(with_api)))  # type: ignore[return-value]  # click's decorators hide the parameters


_NAME = click.argument("name", metavar="CONNECTOR")
_CONFIRMED = click.option("--yes", "--execute", "execute", is_flag=True, help="Do it; otherwise only show what it does.")


def _path(name: str, *more: str) -> str:
    return "/".join(["/connectors", urllib.parse.quote(name, safe=""), *more])


def _properties(path: str) -> dict[str, str]:
    try:
        return read_connector(path)
    except ConnectError as error:
        raise click.UsageError(str(error)) from None


@click.command("list", short_help="List connectors with their states.")
@remote
def list_(session: Session, /, api: Api) -> None:
    """Print all connectors: type, state, and how many tasks are in which state."""
    found = api.call("GET", "/connectors?expand=status&expand=info")
    if session.as_json:
        emit(found)
        return
    rows = [
        (name, one["info"]["type"], _state(one), _task_states(one), one["info"]["config"]["connector.class"]) for name, one in found.items()
    ]
    table(("connector", "type", "state", "tasks", "class"), rows)


def _state(found: Mapping[str, Any]) -> str:
    return str(found.get("status", {}).get("connector", {}).get("state", "UNASSIGNED"))


def _task_states(found: Mapping[str, Any]) -> str:
    states = [task["state"] for task in found.get("status", {}).get("tasks", ())]
    return ", ".join(f"{states.count(one)} {one}" for one in dict.fromkeys(states)) or "0"


@click.command(short_help="Show a connector and its tasks: state, worker, trace.")
@_NAME
@remote
def status(session: Session, /, name: str, api: Api) -> None:
    """Print the states of a connector and its tasks; the trace of what has FAILED."""
    found = api.call("GET", _path(name, "status"))
    failed = [one for one in (found["connector"], *found["tasks"]) if one["state"] == "FAILED"]
    session.exit_code = 1 if failed else 0
    if session.as_json:
        emit(found)
        return
    rows = [("connector", found["connector"]), *((f"task {one['id']}", one) for one in found["tasks"])]
    table(("part", "state", "worker"), [(part, one["state"], one["worker_id"]) for part, one in rows])
    for part, one in rows:
        if "trace" in one:
            say("", f"{part}:", *one["trace"].rstrip().splitlines())


@click.command(short_help="Create a connector, or change it.")
@click.argument("file", metavar="FILE", type=_FILE)
@click.option("--update", is_flag=True, help="Change the connector if it exists.")
@remote
def create(session: Session, /, file: str, update: bool, api: Api) -> None:
    """Create the connector of a property file, or of a JSON file as POST /connectors takes it."""
    config = _properties(file)
    name = config["name"]
    found = api.call("PUT", _path(name, "config"), config) if update else api.call("POST", "/connectors", {"name": name, "config": config})
    if session.as_json:
        emit(found)
    else:
        say(f"{'stored' if update else 'created'} {found['type']} connector {name}")


@click.command(short_help="Check a connector's properties.")
@click.argument("file", metavar="FILE", type=_FILE)
@remote
def validate(session: Session, /, file: str, api: Api) -> None:
    """Check the properties of a file, without creating the connector. Exit code 1 if something is wrong."""
    config = _properties(file)
    plugin = urllib.parse.quote(config.get("connector.class", "none"), safe="")
    found = api.call("PUT", f"/connector-plugins/{plugin}/config/validate", config)
    session.exit_code = 1 if found["error_count"] else 0
    if session.as_json:
        emit(found)
        return
    wrong = [(one["value"]["name"], fault) for one in found["configs"] for fault in one["value"]["errors"]]
    if wrong:
        table(("property", "error"), wrong)
    else:
        say(f"{file} is right")
    known = {one["value"]["name"] for one in found["configs"]}
    for name in sorted(set(config) - known):
        if not name.startswith((*PREFIXES, *_OF_CONNECTORS)):
            say(f"warning: {name} is unknown and has no effect")


def _change(name: str, help_text: str, method: str, path: str, done: str) -> click.Command:
    """A command that changes the state of a connector."""

    @click.command(name, short_help=help_text, help=help_text)
    @click.argument("connector", metavar="CONNECTOR")
    @remote
    def change(session: Session, /, connector: str, api: Api) -> None:
        api.call(method, _path(connector, path))
        if session.as_json:
            emit({"connector": connector, name: True})
        else:
            say(f"{done} connector {connector}")

    return change


pause = _change("pause", "Pause a connector and its tasks.", "PUT", "pause", "paused")
resume = _change("resume", "Let a paused or stopped connector continue.", "PUT", "resume", "resumed")
stop = _change("stop", "Stop a connector: its tasks end, its offsets can be changed.", "PUT", "stop", "stopped")


@click.command(short_help="Restart a connector and its tasks.")
@_NAME
@click.option("--task", type=click.IntRange(0), metavar="N", help="Only this task.")
@click.option("--only-failed", is_flag=True, help="Only what has FAILED.")
@remote
def restart(session: Session, /, name: str, task: int | None, only_failed: bool, api: Api) -> None:
    """Restart a connector with all of its tasks."""
    if task is not None and only_failed:
        raise click.UsageError("give --task or --only-failed, not both")
    if task is not None:
        api.call("POST", _path(name, "tasks", str(task), "restart"))
    else:
        api.call("POST", _path(name, "restart") + f"?includeTasks=true&onlyFailed={str(only_failed).lower()}")
    if session.as_json:
        emit({"connector": name, "restart": True})
    else:
        say(f"restarted {'what has failed of ' if only_failed else f'task {task} of ' if task is not None else ''}connector {name}")


@click.command(short_help="Delete a connector.")
@_NAME
@_CONFIRMED
@remote
def delete(session: Session, /, name: str, execute: bool, api: Api) -> None:
    """Delete a connector; shows it first, and deletes with --yes. Its topics and its offsets stay."""
    found = api.call("GET", _path(name))
    if execute:
        api.call("DELETE", _path(name))
    if session.as_json:
        emit({"executed": execute, "delete": found})
        return
    verb = "deleted" if execute else "would delete"
    say(f"{verb} {found['type']} connector {name} with {counted(len(found['tasks']), 'task')}")
    if not execute:
        say("nothing was done; --yes deletes")


@click.command(short_help="Print, set or forget a connector's offsets.")
@_NAME
@click.option("--set", "new", metavar="FILE", type=click.File(), help="Set the offsets of a JSON file, in the form that --json prints.")
@click.option("--reset", is_flag=True, help="Forget all offsets: the connector begins at the start.")
@_CONFIRMED
@remote
def offsets(session: Session, /, name: str, new: Any, reset: bool, execute: bool, api: Api) -> None:
    """Print the committed offsets of a connector. --set and --reset change those of a stopped one; they need --yes."""
    if new is not None and reset:
        raise click.UsageError("give --set or --reset, not both")
    found = api.call("GET", _path(name, "offsets"))
    changed: Any = json.load(new) if new is not None else {"offsets": []} if reset else None
    if execute and new is not None:
        api.call("PATCH", _path(name, "offsets"), changed)
    elif execute and reset:
        api.call("DELETE", _path(name, "offsets"))
    if session.as_json:
        emit(found if changed is None else {"executed": execute, "from": found["offsets"], "to": changed["offsets"]})
        return
    shown = found if changed is None or reset else changed
    table(("partition", "offset"), [(json.dumps(one["partition"]), json.dumps(one["offset"])) for one in shown["offsets"]])
    if changed is not None:
        done, planned = ("forgot", "would forget") if reset else ("set", "would set")
        say(f"{done if execute else planned} these offsets of connector {name}")
        if not execute:
            say("nothing was done; --yes does it")


@click.command(short_help="List the plugins of a worker.")
@click.option("--all", "every", is_flag=True, help="Converters, transforms and predicates, too.")
@remote
def plugins(session: Session, /, every: bool, api: Api) -> None:
    """Print the connectors that a worker has."""
    found = api.call("GET", f"/connector-plugins?connectorsOnly={str(not every).lower()}")
    if session.as_json:
        emit(found)
    else:
        table(("type", "class", "version"), [(one["type"], one["class"], one["version"]) for one in found])


COMMANDS: tuple[click.Command, ...] = (list_, status, create, validate, pause, resume, stop, restart, delete, offsets, plugins)
