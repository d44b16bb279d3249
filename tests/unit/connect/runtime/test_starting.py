"""How a worker starts: what it says while it waits, and what its log hides."""

import logging

import pytest

from logdb_connect.client import connected
from logdb_connect.providers import Providers
from logdb_connect.runtime.starting import _hidden, _patiently
from support.ports import free_port

PROVIDER = {"config.providers": "env", "config.providers.env.class": "org.apache.kafka.common.config.provider.EnvVarConfigProvider"}


class Told(Exception):
    """Ends the wait."""


@pytest.mark.parametrize("servers", ["http://admin:pass@word@127.0.0.1:PORT", "admin:pass@word@127.0.0.1:PORT", "${env:LOGDB_TEST_PLACE}"])
def test_a_worker_that_waits_for_its_servers_shows_no_password(servers, monkeypatch):
    port = free_port()
    monkeypatch.setenv("LOGDB_TEST_PLACE", f"http://admin:pass@word@127.0.0.1:{port}")
    providers = Providers(PROVIDER)
    properties = providers.resolve({"bootstrap.servers": servers.replace("PORT", str(port))})

    def tell(reason):
        raise Told(reason)

    with pytest.raises(Told) as told:
        _patiently(properties, providers.redact, tell, lambda: connected(properties))
    assert f"127.0.0.1:{port}" in str(told.value)
    assert "pass" not in str(told.value)
    assert "word@" not in str(told.value)


def test_a_wrong_log_call_of_a_plugin_raises_nothing_and_shows_no_secret(monkeypatch):
    monkeypatch.setenv("LOGDB_TEST_PLACE", "hush-hush")
    providers, lines = Providers(PROVIDER), []
    secret = providers.resolve({"x": "${env:LOGDB_TEST_PLACE}"})["x"]
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())
    logging.getLogger().addHandler(handler)
    try:
        with _hidden(providers):
            logging.getLogger("a.plugin").error("%d", str(secret))
    finally:
        logging.getLogger().removeHandler(handler)
    assert len(lines) == 1
    assert "'%d' with ('[hidden]',)" in lines[0]
