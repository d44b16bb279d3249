import os

import pytest

from logdb_connect import ConfigError
from logdb_connect.providers import SIZE_MAX, Providers, Secret

PACKAGE = "org.apache.kafka.common.config.provider."


def providers(**parameters):
    worker = {"config.providers": "file, dir,env"}
    for name, made in (("file", "File"), ("dir", "Directory"), ("env", "EnvVar")):
        worker[f"config.providers.{name}.class"] = f"{PACKAGE}{made}ConfigProvider"
        worker |= {f"config.providers.{name}.param.{key.replace('_', '.')}": str(value) for key, value in parameters.items()}
    return Providers(worker)


def test_values_take_the_place_of_variables(tmp_path, monkeypatch):
    monkeypatch.setenv("LOGDB_TEST_USER", "ada")
    (tmp_path / "s.properties").write_text("user = bob\npass\\ word=s\\u0065cret:x\n")
    (tmp_path / "token").write_text("abc\n")
    used = providers()
    given = {
        "a": f"${{file:{tmp_path}/s.properties:user}}",
        "b": f"x-${{file:{tmp_path}/s.properties:pass word}}-${{env:LOGDB_TEST_USER}}",
        "c": f"${{dir:{tmp_path}:token}}",
        "d": "${topic}-${timestamp} ${vault:a:b} ${",
        "e": "plain",
    }
    found = used.resolve(given)
    assert found == {"a": "bob", "b": "x-secret:x-ada", "c": "abc\n", "d": given["d"], "e": "plain"}
    assert [type(each) for each in found.values()] == [Secret, Secret, Secret, str, str]
    assert "secret" not in repr(found)
    assert used.redact("login with secret:x failed") == "login with [hidden] failed"


def test_links_lead_no_further_than_the_allowed_paths(tmp_path):
    secrets, others = tmp_path / "secrets", tmp_path / "others"
    for each in (secrets, others):
        each.mkdir()
        (each / "token").write_text("t")
    (secrets / "outside").symlink_to(others / "token")
    (secrets / "..data").symlink_to(secrets)
    (secrets / "inside").symlink_to(secrets / "..data" / "token")  # as Kubernetes mounts secrets
    used = providers(allowed_paths=secrets)
    assert used.resolve({"a": f"${{dir:{secrets}:inside}}"}) == {"a": "t"}
    for path in (f"{secrets}:outside", f"{others}:token", f"{secrets}/../others:token"):
        with pytest.raises(ConfigError, match=r"not below allowed\.paths"):
            used.resolve({"a": f"${{dir:{path}}}"})


def test_what_cannot_be_read_is_an_error_of_the_property(tmp_path):
    (tmp_path / "large").write_bytes(b"x" * (SIZE_MAX + 1))
    (tmp_path / "bytes").write_bytes(b"pass=\xff\xfe")
    (tmp_path / "escape").write_text("pass=s3cret\\u00")
    os.mkfifo(tmp_path / "pipe")
    used = providers(allowlist_pattern="LOGDB_.*")
    for variable, fault in (
        (f"dir:{tmp_path}:none", "has no such value"),
        (f"dir:{tmp_path}:../x", "is no name of a file"),
        (f"dir:{tmp_path}:large", "more than"),
        (f"dir:{tmp_path}:pipe", "no regular file"),
        (f"file:{tmp_path}:a", "no regular file|Is a directory"),
        (f"file:{tmp_path}/bytes:pass", "is not UTF-8"),
        (f"file:{tmp_path}/escape:pass", "has a wrong escape$"),
        (f"file:{tmp_path}/missing:a", "No such file"),
        ("env:HOME", "has no such value"),
        ("env:p:HOME", "Path is not supported"),
    ):
        with pytest.raises(ConfigError, match=fault) as raised:
            used.resolve({"secret": f"${{{variable}}}"})
        assert raised.value.name == "secret"


@pytest.mark.parametrize(
    ("worker", "fault"),
    [
        ({}, "Missing required configuration"),
        ({"class": "Nothing"}, "must be one of"),
        ({"class": "no_module:Nothing"}, "No module"),
        ({"class": PACKAGE + "FileConfigProvider", "param.allowed.paths": "relative"}, "is not absolute"),
        ({"class": PACKAGE + "FileConfigProvider", "param.allowed.paths": "/no/such/path"}, "does not exist"),
    ],
)
def test_providers_that_cannot_be_made(worker, fault):
    with pytest.raises(ConfigError, match=fault):
        Providers({"config.providers": "p", **{f"config.providers.p.{key}": value for key, value in worker.items()}})


def test_a_value_is_hidden_in_each_form_that_messages_have(monkeypatch):
    monkeypatch.setenv("SHORT", "pass")
    monkeypatch.setenv("LONG", "pass/w ör\nd'")
    monkeypatch.setenv("LINE", "word of a file\n")
    used = Providers({"config.providers": "env", "config.providers.env.class": f"{PACKAGE}EnvVarConfigProvider"})
    used.resolve({"a": "${env:SHORT}", "b": "${env:LONG}", "c": "${env:LINE}"})
    for form in (
        "pass/w ör\nd'",
        "pass%2Fw%20%C3%B6r%0Ad%27",
        "pass/w%20%C3%B6r%0Ad%27",
        "pass%2Fw+%C3%B6r%0Ad%27",
        "pass/w ör\\nd'",
        "word of a file",
    ):
        assert used.redact(f"[{form}]") == "[[hidden]]"
