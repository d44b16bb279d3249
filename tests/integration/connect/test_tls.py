"""Workers whose REST API has TLS and users: what a caller needs, and how workers forward requests to one another."""

import base64
import json
import ssl
import urllib.error
import urllib.request

import pytest

from support.certificates import Authority
from support.connect_workers import distributed, served, written
from support.ports import free_port
from support.waiting import until


class Caller:
    """A caller of one worker."""

    def __init__(self, port, context, user="ann:secret"):
        self.port, self._context = port, context
        self._headers = {"Content-Type": "application/json", "Authorization": f"Basic {base64.b64encode(user.encode()).decode()}"}

    def call(self, method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"https://127.0.0.1:{self.port}{path}", data, self._headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60, context=self._context) as answer:
                content = answer.read()
                return answer.status, json.loads(content) if content else None
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read())


def test_workers_forward_requests_by_tls_with_the_callers_credential(tmp_path):
    authority = Authority(tmp_path / "ca")
    files = authority.server()
    settings = {
        "rest_ssl_certfile": str(files.cert),
        "rest_ssl_keyfile": str(files.key),
        "rest_ssl_cafile": str(authority.file),
        "rest_users_file": written(tmp_path / "users.properties", {"ann": "secret"}),
    }
    ports = free_port(), free_port()
    with (
        served(tmp_path / "db") as broker,
        distributed(broker, tmp_path, "a", listeners=f"https://127.0.0.1:{ports[0]}", **settings),
        distributed(broker, tmp_path, "b", listeners=f"https://127.0.0.1:{ports[1]}", **settings),
    ):
        callers = [Caller(port, authority.context()) for port in ports]
        for name, caller in zip(("one", "two"), callers, strict=True):  # one of them does not lead
            config = {"connector.class": "support.connect_plugins:CounterConnector", "topic": name}
            assert caller.call("POST", "/connectors", {"name": name, "config": config})[0] == 201
        for caller in callers:
            until(lambda caller=caller: states(caller, "one") == states(caller, "two") == ["RUNNING", "RUNNING"])
            assert caller.call("POST", "/connectors/one/tasks/0/restart")[0] == 204
        assert Caller(ports[0], authority.context(), "ann:wrong").call("GET", "/connectors")[0] == 401
        with pytest.raises(urllib.error.URLError, match="CERTIFICATE_VERIFY_FAILED"):
            Caller(ports[0], ssl.create_default_context()).call("GET", "/connectors")


def states(caller, name):
    status, found = caller.call("GET", f"/connectors/{name}/status")
    return [found["connector"]["state"], *(task["state"] for task in found["tasks"])] if status == 200 else []
