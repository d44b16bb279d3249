"""A schema registry with Confluent's REST API, in a thread: for tests of faults, and fast.  ``support.apicurio`` is a real one."""

import contextlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit


class SchemaRegistry:
    """What is registered; ``fault`` is a status that all requests get."""

    def __init__(self) -> None:
        self.schemas: list[dict] = []
        self.subjects: dict[str, list[int]] = {}
        self.requests: list[tuple[str, str]] = []
        self.authorization: str | None = None
        self.fault: int | None = None
        self.url = ""

    def answer(self, method: str, path: str, document: dict | None, authorization: str | None) -> tuple[int, dict]:
        self.requests.append((method, path))
        if self.fault is not None:
            return self.fault, {"error_code": self.fault, "message": "fault"}
        if self.authorization is not None and authorization != self.authorization:
            return 401, {"error_code": 401, "message": "Unauthorized"}
        match [unquote(part) for part in urlsplit(path).path.strip("/").split("/")], method:
            case ["schemas", "ids", number], "GET":
                known = int(number) <= len(self.schemas)
                return (200, self.schemas[int(number) - 1]) if known else (404, {"error_code": 40403, "message": "Schema not found"})
            case ["subjects", subject, "versions"], "POST":
                if document not in self.schemas:
                    self.schemas.append(document)
                number = self.schemas.index(document) + 1
                self.subjects.setdefault(subject, []).append(number)
                return 200, {"id": number}
            case ["subjects", subject], "POST":
                number = self.schemas.index(document) + 1 if document in self.schemas else 0
                known = number in self.subjects.get(subject, ())
                return (200, {"id": number}) if known else (404, {"error_code": 40403, "message": "Schema not found"})
            case ["subjects", subject, "versions", version], "GET" if version.isdecimal() and subject in self.subjects:
                return 200, self.schemas[self.subjects[subject][int(version) - 1] - 1]
            case ["subjects", subject, "versions", "latest"], "GET" if subject in self.subjects:
                number = self.subjects[subject][-1]
                return 200, {"id": number, "schema": self.schemas[number - 1]["schema"]}
        return 404, {"error_code": 40401, "message": "Subject not found."}


@contextlib.contextmanager
def schema_registry() -> Iterator[SchemaRegistry]:
    """A registry that serves on a port of its own."""
    registry = SchemaRegistry()

    class Handler(BaseHTTPRequestHandler):
        def _serve(self) -> None:
            size = int(self.headers.get("Content-Length") or 0)
            document = json.loads(self.rfile.read(size)) if size else None
            status, answer = registry.answer(self.command, self.path, document, self.headers.get("Authorization"))
            data = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = _serve  # noqa: N815 - the names of http.server

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    registry.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield registry
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
