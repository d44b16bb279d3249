"""The routes of Kafka Connect's REST API, with its bodies, status codes and error shapes (``connect/runtime/rest/resources``)."""

import asyncio
import hmac
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar
from urllib.parse import quote

from aiohttp import web

from logdb import LogdbError, __version__
from logdb_connect.config import definition
from logdb_connect.errors import Conflict, ConnectError, NotFound
from logdb_connect.rest.forwarding import SIGNATURE, forward, signature
from logdb_connect.rest.metrics import CONTENT_TYPE, page
from logdb_connect.runtime.distributed import NotLeader
from logdb_connect.runtime.herder import Herder
from logdb_connect.runtime.tasks import TaskId
from logdb_connect.runtime.validation import BadRequest, definition_of

logger = logging.getLogger(__name__)
T = TypeVar("T")
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

REQUEST_TIMEOUT_S = 90  # Kafka's
_THREADS = 8
_ID_WAIT_S = 0.5
_BODY_MAX = 16 << 20  # a worker sends the leader the configs of all tasks of a connector at once
_LEVELS = ("OFF", "FATAL", "ERROR", "WARN", "INFO", "DEBUG", "TRACE")
_OF_PYTHON = {"OFF": 100, "FATAL": 50, "ERROR": 40, "WARN": 30, "INFO": 20, "DEBUG": 10, "TRACE": 5}
routes = web.RouteTableDef()
POOL: web.AppKey[ThreadPoolExecutor] = web.AppKey("pool", ThreadPoolExecutor)


class Served:
    """What the routes answer for.

    Attributes:
        herder: None until the worker has started: until then each answer is 503.
        waits_for: Why it has not started.
    """

    def __init__(self) -> None:
        self.herder: Herder | None = None
        self.waits_for = ""
        self._cluster_id: str | None = None
        self._asked: asyncio.Future[str | None] | None = None

    async def cluster_id(self, pool: ThreadPoolExecutor) -> str | None:
        """The id of the database: as it was when a question was last answered, where no answer comes in time."""
        assert self.herder is not None
        if self._asked is None or self._asked.done():
            self._asked = asyncio.get_running_loop().run_in_executor(pool, self.herder.worker.client.cluster_id)
        await asyncio.wait({self._asked}, timeout=_ID_WAIT_S)
        if self._asked.done() and self._asked.exception() is None:
            self._cluster_id = self._asked.result()
        return self._cluster_id


SERVED: web.AppKey[Served] = web.AppKey("served", Served)


def make_app(served: Served) -> web.Application:
    """The application of a worker."""
    app = web.Application(middlewares=[_errors], client_max_size=_BODY_MAX)
    app[SERVED], app[POOL] = served, ThreadPoolExecutor(_THREADS, thread_name_prefix="connect-rest")
    app.add_routes(routes)

    async def end(app: web.Application) -> None:
        app[POOL].shutdown(wait=False, cancel_futures=True)

    app.on_cleanup.append(end)
    return app


def refused(status: int, message: str) -> web.Response:
    """An error in Kafka's shape."""
    return web.json_response({"error_code": status, "message": message}, status=status)


def herder_of(request: web.Request) -> Herder:
    herder = request.app[SERVED].herder
    assert herder is not None
    return herder


def _starting(request: web.Request) -> web.Response:
    message = f"Worker is still starting up. {request.app[SERVED].waits_for}".strip()
    if request.path == "/health":
        return web.json_response({"status": "starting", "message": message}, status=503)
    return refused(503, message)


@web.middleware
async def _errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Errors in Kafka's shape."""
    if request.app[SERVED].herder is None:
        return _starting(request)
    redact = herder_of(request).worker.redact
    try:
        return await handler(request)
    except web.HTTPException as error:
        return refused(error.status, f"HTTP {error.status} {error.reason}")
    except NotFound as error:
        return refused(404, redact(str(error)))
    except NotLeader as error:
        if request.query.get("forward", "true") != "false":
            return await forward(request, error.url, herder_of(request).worker.config)
        return refused(409, redact(str(error)))
    except Conflict as error:
        return refused(409, redact(str(error)))
    except BadRequest as error:
        return refused(400, redact(str(error)))
    except (ConnectError, LogdbError) as error:
        return refused(500, redact(str(error)))
    except TimeoutError:
        return refused(500, "Request timed out. The worker is currently busy; a retry is safe.")
    except Exception as error:
        logger.exception("%s %s", request.method, request.path)
        return refused(500, redact(f"{type(error).__name__}: {error}"))


async def call(request: web.Request, function: Callable[..., T], *args: Any, **options: Any) -> T:
    """Call the herder in a thread."""
    loop = asyncio.get_running_loop()
    return await asyncio.wait_for(loop.run_in_executor(request.app[POOL], partial(function, *args, **options)), REQUEST_TIMEOUT_S)


async def body(request: web.Request, kind: type = dict) -> Any:
    """The JSON of a request.

    Raises:
        BadRequest: It is something else.
    """
    try:
        document = json.loads(await request.read())
    except ValueError as error:
        raise BadRequest(f"the body is not JSON: {error}") from None
    except RecursionError:
        raise BadRequest("the body is nested too deeply") from None
    if not isinstance(document, kind):
        raise BadRequest(f"the body must be a JSON {'object' if kind is dict else 'array'}")
    try:
        json.dumps(document, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise BadRequest("the body has a surrogate without its pair, such as \\ud800: no record can hold it") from None
    return document


def _strings(document: Any) -> dict[str, str]:
    """Properties, whose values may be written as numbers and booleans."""
    if not isinstance(document, dict):
        raise BadRequest("the config must be a JSON object")
    return {name: value if isinstance(value, str) else json.dumps(value) for name, value in document.items() if value is not None}


def _flag(request: web.Request, name: str) -> bool:
    return request.query.get(name, "false").lower() == "true"


def _name(request: web.Request) -> str:
    return request.match_info["name"]


def _task(request: web.Request) -> TaskId:
    return TaskId(_name(request), int(request.match_info["task"]))


# ------------------------------------------------------------ the worker


@routes.get("/")
async def root(request: web.Request) -> web.Response:
    cluster_id = await request.app[SERVED].cluster_id(request.app[POOL])
    return web.json_response({"version": __version__, "commit": "logdb", "kafka_cluster_id": cluster_id})


@routes.get("/health")
async def health(request: web.Request) -> web.Response:
    found = herder_of(request).health()
    return web.json_response({"status": found[0], "message": found[1]}, status=200 if found[0] == "healthy" else 503)


@routes.get("/metrics")
async def metrics(request: web.Request) -> web.Response:
    return web.Response(text=page(herder_of(request)), headers={"Content-Type": CONTENT_TYPE})


# ------------------------------------------------------------ connectors


@routes.get("/connectors")
async def connectors(request: web.Request) -> web.Response:
    herder = herder_of(request)
    names = await call(request, herder.connectors)
    wanted = request.query.getall("expand", [])
    if not wanted:
        return web.json_response(names)
    return web.json_response(await call(request, _expanded, herder, names, wanted))


def _expanded(herder: Herder, names: list[str], wanted: list[str]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for name in names:
        try:
            made[name] = {what: getattr(herder, what)(name) for what in wanted if what in ("status", "info")}
        except NotFound:
            continue  # it was deleted meanwhile
    return made


@routes.post("/connectors")
async def create(request: web.Request) -> web.Response:
    document = await body(request)
    if "config" not in document:
        raise BadRequest('config is missing: the body must be {"name": NAME, "config": {PROPERTY: VALUE}}')
    name, config = document.get("name"), _strings(document["config"])
    name = name if name is not None else config.get("name")
    if not isinstance(name, str) or not name.strip():
        raise BadRequest("Connector name must be a string of at least one character")
    if config.get("name", name) != name:
        raise BadRequest("Connector name configuration in the request body doesn't match the connector name")
    made = await call(request, herder_of(request).create, name.strip(), config, document.get("initial_state"))
    return web.json_response(made, status=201, headers={"Location": f"/connectors/{quote(name.strip(), safe='')}"})


@routes.get("/connectors/{name}")
async def info(request: web.Request) -> web.Response:
    return web.json_response(await call(request, herder_of(request).info, _name(request)))


@routes.delete("/connectors/{name}")
async def delete(request: web.Request) -> web.Response:
    await call(request, herder_of(request).delete, _name(request))
    return web.Response(status=204)


@routes.get("/connectors/{name}/config")
async def config(request: web.Request) -> web.Response:
    return web.json_response(await call(request, herder_of(request).config, _name(request)))


@routes.put("/connectors/{name}/config")
async def put_config(request: web.Request) -> web.Response:
    given = _strings(await body(request))
    if given.get("name", _name(request)) != _name(request):
        raise BadRequest("Connector name configuration in the request body doesn't match the connector name in the URL")
    created, made = await call(request, herder_of(request).put_config, _name(request), given)
    return web.json_response(made, status=201 if created else 200)


@routes.patch("/connectors/{name}/config")
async def patch_config(request: web.Request) -> web.Response:
    document = await body(request)
    changes = {name: None if value is None else _strings({name: value})[name] for name, value in document.items()}
    return web.json_response(await call(request, herder_of(request).patch_config, _name(request), changes))


@routes.get("/connectors/{name}/status")
async def status(request: web.Request) -> web.Response:
    return web.json_response(await call(request, herder_of(request).status, _name(request)))


@routes.post("/connectors/{name}/restart")
async def restart(request: web.Request) -> web.Response:
    herder, name = herder_of(request), _name(request)
    include_tasks, only_failed = _flag(request, "includeTasks"), _flag(request, "onlyFailed")
    if include_tasks or only_failed:
        made = await call(request, herder.restart, name, include_tasks=include_tasks, only_failed=only_failed)
        return web.json_response(made, status=202)
    await call(request, herder.restart_connector, name)
    return web.Response(status=204)


@routes.put("/connectors/{name}/pause")
async def pause(request: web.Request) -> web.Response:
    await call(request, herder_of(request).set_target, _name(request), "PAUSED")
    return web.Response(status=202)


@routes.put("/connectors/{name}/resume")
async def resume(request: web.Request) -> web.Response:
    await call(request, herder_of(request).set_target, _name(request), "STARTED")
    return web.Response(status=202)


@routes.put("/connectors/{name}/stop")
async def stop(request: web.Request) -> web.Response:
    await call(request, herder_of(request).set_target, _name(request), "STOPPED")
    return web.Response(status=204)


# ------------------------------------------------------------ tasks and topics


@routes.get("/connectors/{name}/tasks")
async def tasks(request: web.Request) -> web.Response:
    return web.json_response(await call(request, herder_of(request).tasks, _name(request)))


@routes.post("/connectors/{name}/tasks")
async def put_tasks(request: web.Request) -> web.Response:
    """For workers of the group alone: configs of tasks, signed with the group's key (KIP-507)."""
    herder, content = herder_of(request), await request.read()
    key = getattr(herder, "session_key", None)
    if key is None or not hmac.compare_digest(request.headers.get(SIGNATURE, "").encode(), signature(key, content).encode()):
        return refused(403, "Internal request contained invalid signature.")
    given = await body(request, list)
    await call(request, herder.put_tasks, _name(request), [_strings(one) for one in given])
    return web.Response(status=200)


@routes.get(r"/connectors/{name}/tasks/{task:\d+}/status")
async def task_status(request: web.Request) -> web.Response:
    return web.json_response(await call(request, herder_of(request).task_status, _task(request)))


@routes.post(r"/connectors/{name}/tasks/{task:\d+}/restart")
async def restart_task(request: web.Request) -> web.Response:
    await call(request, herder_of(request).restart_task, _task(request))
    return web.Response(status=204)


@routes.get("/connectors/{name}/topics")
async def topics(request: web.Request) -> web.Response:
    found = await call(request, herder_of(request).topics, _name(request))
    return web.json_response({_name(request): {"topics": found}})


@routes.put("/connectors/{name}/topics/reset")
async def reset_topics(request: web.Request) -> web.Response:
    if not herder_of(request).worker.config["topic.tracking.allow.reset"]:
        return refused(403, "Topic tracking reset is disabled.")
    await call(request, herder_of(request).reset_topics, _name(request))
    return web.Response(status=202)


# ------------------------------------------------------------ offsets


@routes.get("/connectors/{name}/offsets")
async def offsets(request: web.Request) -> web.Response:
    return web.json_response(await call(request, herder_of(request).offsets, _name(request)))


@routes.patch("/connectors/{name}/offsets")
async def alter_offsets(request: web.Request) -> web.Response:
    given = (await body(request)).get("offsets")
    if not isinstance(given, list) or not given or not all(isinstance(one, dict) for one in given):
        raise BadRequest("Partitions / offsets need to be provided for an alter offsets request")
    return web.json_response({"message": await call(request, herder_of(request).alter_offsets, _name(request), given)})


@routes.delete("/connectors/{name}/offsets")
async def reset_offsets(request: web.Request) -> web.Response:
    return web.json_response({"message": await call(request, herder_of(request).alter_offsets, _name(request), None)})


# ------------------------------------------------------------ plugins


@routes.get("/connector-plugins")
async def plugins(request: web.Request) -> web.Response:
    found = await call(request, herder_of(request).worker.plugins.all)
    only = request.query.get("connectorsOnly", "true").lower() != "false"
    shown = [one for one in found if not only or one.kind in ("source", "sink")]
    return web.json_response([{"class": one.name, "type": one.kind, "version": one.version} for one in shown])


@routes.get("/connector-plugins/{plugin}/config")
async def plugin_config(request: web.Request) -> web.Response:
    return web.json_response(await call(request, _definitions, herder_of(request), request.match_info["plugin"]))


def _definitions(herder: Herder, name: str) -> list[dict[str, Any]]:
    plugins = herder.worker.plugins
    for kinds in (("source", "sink"), ("converter",), ("header_converter",), ("transformation",), ("predicate",)):
        try:
            made: Any = plugins.find(name, kinds, "plugin")
        except ConnectError:
            continue
        keys = definition_of(herder.worker, made, {}) if kinds[0] == "source" else made.config_def
        return [definition(key) for key in keys]
    raise NotFound(f"Unknown plugin {name}.")


@routes.put("/connector-plugins/{plugin}/config/validate")
async def validate(request: web.Request) -> web.Response:
    given = _strings(await body(request))
    return web.json_response(await call(request, herder_of(request).validate, request.match_info["plugin"], given))


# ------------------------------------------------------------ loggers


@routes.get("/admin/loggers")
async def loggers(_: web.Request) -> web.Response:
    found = {
        name: logger for name, logger in logging.root.manager.loggerDict.items() if isinstance(logger, logging.Logger) and logger.level
    }
    return web.json_response({name: _logger(one) for name, one in sorted({**found, "root": logging.root}.items())})


@routes.get("/admin/loggers/{logger}")
async def get_logger(request: web.Request) -> web.Response:
    name = request.match_info["logger"]
    if name != "root" and name not in logging.root.manager.loggerDict:
        raise NotFound(f"Logger {name} not found.")
    return web.json_response(_logger(_named(name)))


@routes.put("/admin/loggers/{logger}")
async def put_logger(request: web.Request) -> web.Response:
    level = str((await body(request)).get("level", "")).upper()
    if level not in _LEVELS:
        raise NotFound(f"invalid log level '{level}'.") if level else BadRequest("Desired 'level' parameter was not specified in request.")
    name = request.match_info["logger"]
    below = [one for one in logging.root.manager.loggerDict if one == name or one.startswith(f"{name}.")]
    changed = sorted({name, *below})
    for one in changed:
        _named(one).setLevel(_OF_PYTHON[level])
    return web.json_response(changed)


def _named(name: str) -> logging.Logger:
    return logging.root if name == "root" else logging.getLogger(name)


def _logger(found: logging.Logger) -> Mapping[str, Any]:
    level = found.getEffectiveLevel()
    return {"level": next((name for name, number in _OF_PYTHON.items() if number <= level), "TRACE"), "last_modified": None}
