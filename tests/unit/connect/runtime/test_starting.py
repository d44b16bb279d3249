"""How a worker starts: what it says while it waits."""

import pytest

from logdb_connect.client import connected
from logdb_connect.providers import Providers
from logdb_connect.runtime.starting import _patiently
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
