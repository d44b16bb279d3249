"""What lies in deploy/, and the workflow for wheels: run where they can run here, else checked by a schema.

systemd reads the unit, and the health check asks a server.  The image is never built: its Dockerfile is checked by what matters.
Compose, Kubernetes, Prometheus, Grafana and GitHub never run: their files are checked by schemas.
"""

import contextlib
import importlib.util
import json
import os
import re
import subprocess
import sys
import tomllib
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import jsonschema
import kubernetes_validate
import promql_parser
import pytest
import trustme
import yaml
from click.testing import CliRunner
from grafana_foundation_sdk.cog import plugins, runtime
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard

import logdb
import logdb.testing
from logdb.cli.app import cli
from logdb.cli.serving.settings import SETTINGS, variable_of
from logdb_replication.config import ClusterConfig
from support.ports import free_port
from support.tools import needs

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
LOGDB = Path(sys.executable).parent / "logdb"


def test_the_page_of_the_server_names_each_file():
    rows = re.findall(r"^\| `deploy/(\S+)` \|", (ROOT / "docs" / "reference" / "http.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(rows) == sorted(path.name for path in DEPLOY.iterdir() if path.is_file() and path.suffix != ".dockerignore")


# ---------------------------------------------------------------- systemd


@needs("systemd-analyze")
@pytest.mark.skipif(not LOGDB.exists(), reason="the script logdb is not installed")
def test_systemd_takes_the_unit(tmp_path):
    unit = tmp_path / "logdb.service"
    unit.write_text((DEPLOY / "logdb.service").read_text().replace("/usr/local/bin/logdb", str(LOGDB)))
    found = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, timeout=60)
    assert (found.returncode, found.stderr) == (0, "")


def test_the_unit_is_confined_and_ends_by_draining():
    unit = dict(re.findall(r"^(\w+)=(.*)$", (DEPLOY / "logdb.service").read_text(), re.MULTILINE))
    expected = {
        "DynamicUser": "yes",
        "StateDirectory": "logdb",
        "NoNewPrivileges": "yes",
        "ProtectSystem": "strict",
        "ProtectHome": "yes",
        "CapabilityBoundingSet": "",
        "KillSignal": "SIGTERM",
        "Restart": "on-failure",
        "ExecReload": "/bin/kill -HUP $MAINPID",
    }
    assert expected.items() <= unit.items()
    assert int(unit["TimeoutStopSec"]) * 1000 > 10_000, "longer than drain_ms"
    assert int(unit["LimitNOFILE"]) > 2 * 10_000, "connections_max, and files"
    path, *arguments = unit["ExecStart"].split()
    assert (path, arguments) == ("/usr/local/bin/logdb", ["serve", f"/var/lib/{unit['StateDirectory']}"])


# ---------------------------------------------------------------- Docker


@pytest.fixture(scope="module")
def instructions() -> list[tuple[str, str]]:
    """The Dockerfile's, in order."""
    text = re.sub(r"^#.*\n", "", (DEPLOY / "Dockerfile").read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    return [(name, rest) for name, _, rest in (line.partition(" ") for line in text.splitlines() if line)]


def last_stage(instructions):
    begin = max(at for at, (name, _) in enumerate(instructions) if name == "FROM")
    return instructions[begin:]


def test_two_stages_of_which_the_last_has_no_compiler(instructions):
    images = [rest for name, rest in instructions if name == "FROM"]
    assert len(images) == 2
    assert all(re.match(r"python:3\.\d+-slim-\w+( AS \w+)?$", image) for image in images), "a version, not latest"
    assert not any("gcc" in rest for _, rest in last_stage(instructions))


def test_the_server_is_not_root(instructions):
    names = [name for name, _ in last_stage(instructions)]
    given = dict(last_stage(instructions))
    assert given["USER"] not in ("root", "0")
    assert "RUN" not in names[names.index("USER") :]
    assert (given["VOLUME"], given["EXPOSE"], given["STOPSIGNAL"]) == ("/data", "8080 9092", "SIGTERM")


def test_the_server_gets_its_signals_and_its_settings(instructions):
    given = dict(last_stage(instructions))
    command = json.loads(given["ENTRYPOINT"]) + json.loads(given["CMD"])
    assert command[:2] == ["logdb", "serve"], "as a list: no shell stands before it"
    options = dict(zip(command[2::2], command[3::2], strict=True))
    assert options == {"--http": "0.0.0.0:8080", "--kafka": "0.0.0.0:9092", "--kafka-advertised": "localhost:9092"}
    variables = dict(pair.split("=", 1) for pair in given["ENV"].split())
    assert {name for name in variables if name.startswith("LOGDB_")} <= {variable_of(name) for name in SETTINGS}
    assert not {"LOGDB_HTTP", "LOGDB_KAFKA"} & variables.keys(), "a node of a cluster refuses them"


def test_the_image_has_what_a_node_of_a_cluster_needs(instructions):
    (extras,) = (re.search(r"'\.\[(.*)\]'", rest) for name, rest in instructions if name == "RUN" and "pip install" in rest)
    assert {"cli", "codecs", "http", "cluster"} <= set(extras[1].split(","))


def test_others_are_let_in_only_when_somebody_says_so(instructions, tmp_path):
    variables = dict(pair.split("=", 1) for pair in dict(last_stage(instructions))["ENV"].split())
    command = json.loads(dict(last_stage(instructions))["CMD"])
    refused = CliRunner().invoke(cli, command, env={**variables, "LOGDB_DATA_DIR": str(tmp_path / "db")})
    assert refused.exit_code == 2
    assert "0.0.0.0:8080" in refused.stderr


def test_what_is_copied_is_there_and_not_ignored(instructions):
    kept = {line[1:] for line in (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines() if line.startswith("!")}
    assert all((ROOT / path).exists() for path in kept)
    copied = [rest.split()[0] for name, rest in instructions if name == "COPY" and not rest.startswith("--from")]
    assert set(copied) - {"."} <= kept


def test_nothing_that_the_package_is_built_of_is_ignored():
    kept = {line[1:].partition("/")[0] for line in (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines() if line.startswith("!")}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    sources = project["tool"]["setuptools"]["packages"]["find"]["where"]
    assert {*sources, "pyproject.toml", "setup.py", project["project"]["readme"], *project["project"]["license-files"]} <= kept


def check(pid: int) -> tuple[int, str]:
    done = subprocess.run([sys.executable, str(DEPLOY / "healthy.py"), str(pid)], capture_output=True, text=True, timeout=60)
    return done.returncode, done.stderr


def module_of(path: Path) -> ModuleType:
    """A program of this directory, to run in this process."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@contextlib.contextmanager
def serving(*words: str) -> Iterator[int]:
    """The process id of a server that serves."""
    with subprocess.Popen([sys.executable, "-m", "logdb.cli", "serve", *words], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline()
            yield process.pid
        finally:
            process.terminate()


@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize("listeners", [("--http",), ("--kafka",), ("--http", "--kafka")])
def test_the_health_check_asks_what_is_served(tmp_path, tls, listeners):
    trustme.CA().issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "cert.pem"))
    options = ("--tls-cert", str(tmp_path / "cert.pem")) if tls else ()
    with serving(str(tmp_path / "db"), *(word for name in listeners for word in (name, "127.0.0.1:0")), *options) as pid:
        assert check(pid) == (0, "")
    code, reason = check(pid)  # it has ended
    assert (code, "No such file" in reason) == (1, True)


def test_a_node_of_a_cluster_is_asked_at_its_listeners_for_clients(tmp_path):
    CliRunner().invoke(cli, ["cluster", "init", str(tmp_path), "--nodes", "1", "--http-ports", str(free_port())], catch_exceptions=False)
    node = tmp_path / "node-1"
    with serving(str(node / "data"), "--cluster", str(node / "cluster.toml")) as pid:
        assert check(pid) == (0, "")


def test_a_listener_that_does_not_answer_is_named(monkeypatch):
    healthy = module_of(DEPLOY / "healthy.py")
    program = "import socket, time; s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1], flush=True); time.sleep(99)"
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as process:
        port = process.stdout.readline().strip()
        monkeypatch.setattr(healthy, "TIMEOUT_S", 0.05)
        monkeypatch.setattr(sys, "argv", ["healthy.py", str(process.pid)])
        with pytest.raises(SystemExit) as raised:
            healthy.main()
        process.kill()
    assert raised.value.code == f"port {port}: it answers neither HTTP nor Kafka's protocol"


# ---------------------------------------------------------------- Compose, GitHub and Kubernetes: by schemas, and what their shells run


@pytest.mark.parametrize(
    ("schema", "path", "known", "unknown"),
    [
        ("compose-spec", "deploy/compose.yaml", "cap_drop:", "cap_dropp:"),
        ("github-workflows", ".github/workflows/wheels.yml", "runs-on:", "run-on:"),
    ],
)
def test_a_published_schema_takes_the_file(tmp_path, schema, path, known, unknown):
    def checked(file: Path) -> tuple[int, str]:
        command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{schema}", str(file)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        return done.returncode, done.stdout

    assert checked(ROOT / path) == (0, "ok -- validation done\n")
    mistyped = tmp_path / Path(path).name
    mistyped.write_text((ROOT / path).read_text(encoding="utf-8").replace(known, unknown), encoding="utf-8")
    assert checked(mistyped)[0] == 1, "the schema knows the names"


def documents(name: str) -> list[dict]:
    return list(yaml.safe_load_all((DEPLOY / name).read_text(encoding="utf-8")))


def test_kubernetes_takes_the_manifests():
    found = {document["kind"]: document for document in documents("kubernetes.yaml")}
    assert found.keys() == {"Service", "PodDisruptionBudget", "NetworkPolicy", "StatefulSet"}
    for document in found.values():
        kubernetes_validate.validate(document, "1.33", strict=True)
    labels = found["StatefulSet"]["spec"]["template"]["metadata"]["labels"]
    assert labels == found["Service"]["spec"]["selector"] == found["StatefulSet"]["spec"]["selector"]["matchLabels"]


def test_a_pod_takes_its_nodes_directory_once(tmp_path):
    """The commands of the manifest's head, and those of the init container with its directories moved."""
    (set_,) = (document for document in documents("kubernetes.yaml") if document["kind"] == "StatefulSet")
    ((script,),) = (one["args"] for one in set_["spec"]["template"]["spec"]["initContainers"])
    names = "logdb-0.logdb,logdb-1.logdb,logdb-2.logdb"
    init = ["cluster", "init", str(tmp_path / "nodes"), "--nodes", "3", "--hosts", names]
    made = CliRunner().invoke(cli, [*init, "--http-ports", "8080,8080,8080", "--kafka-ports", "9092,9092,9092"])
    assert made.exit_code == 0, made.output
    for node in (1, 2, 3):
        subprocess.run(["tar", "-czf", tmp_path / f"node-{node}.tgz", "-C", tmp_path / "nodes" / f"node-{node}", "."], check=True)
    (tmp_path / "data").mkdir()
    script = script.replace("/data", str(tmp_path / "data")).replace("/nodes/", f"{tmp_path}/")
    for host in ("logdb-1", "logdb-0"):  # a later start of another pod with this volume changes nothing
        subprocess.run(["sh", "-euc", script], check=True, env={"HOSTNAME": host, "PATH": os.environ["PATH"]})
    node = tmp_path / "data" / "node"
    assert tomllib.loads((node / "cluster.toml").read_text())["node"] == 2
    assert {path.name for path in (node / "data").iterdir()} == {"cluster.json", "quorum"}
    assert node.stat().st_mode & 0o777 == 0o700


def test_compose_starts_what_the_command_takes(tmp_path):
    (compose,) = documents("compose.yaml")
    services = compose["services"]
    assert {name for name, one in services.items() if "three" in one["profiles"]} == {"init", "logdb-1", "logdb-2", "logdb-3"}
    assert all(port.startswith("127.0.0.1:") for one in services.values() for port in one.get("ports", ())), "it is without TLS"
    (script,) = services["init"]["command"]
    script = script.replace("$$", "$").replace("/data", str(tmp_path))
    path = f"{LOGDB.parent}{os.pathsep}{os.environ['PATH']}"
    subprocess.run(["sh", "-euc", script], check=True, env={"PATH": path}, stdout=subprocess.DEVNULL)
    for number in (1, 2, 3):
        _, data, _, config = services[f"logdb-{number}"]["command"]
        loaded = ClusterConfig.load(config.replace("/data", str(tmp_path), 1))
        assert (loaded.node, loaded.kafka_advertised) == (number, ("localhost", 19090 + number))
        assert data == f"/data/node-{number}/data"
        assert f"127.0.0.1:1909{number}:9092" in services[f"logdb-{number}"]["ports"]


# ---------------------------------------------------------------- Prometheus and Grafana

SPAN = {"type": "string", "pattern": r"^([0-9]+(ms|[smhdwy]))+$"}
LABELS = {"type": "object", "propertyNames": {"pattern": "^[a-zA-Z_][a-zA-Z0-9_]*$"}, "additionalProperties": {"type": "string"}}
ALERT = {
    "type": "object",
    "required": ["alert", "expr", "annotations"],
    "additionalProperties": False,
    "properties": {
        "alert": {"type": "string", "pattern": "^Logdb[A-Z][A-Za-z]+$"},
        "expr": {"type": "string"},
        "for": SPAN,
        "keep_firing_for": SPAN,
        "labels": LABELS,
        "annotations": LABELS | {"required": ["summary"]},
    },
}
GROUP = {
    "type": "object",
    "required": ["name", "rules"],
    "additionalProperties": False,
    "properties": {"name": {"type": "string"}, "interval": SPAN, "rules": {"type": "array", "minItems": 1, "items": ALERT}},
}
# Of Prometheus' documentation of rule files: nobody publishes a schema of them in a package
RULES = {
    "type": "object",
    "required": ["groups"],
    "additionalProperties": False,
    "properties": {"groups": {"type": "array", "items": GROUP}},
}


def test_the_alerts_are_a_rule_file_of_prometheus():
    (rules,) = documents("alerts.yml")
    jsonschema.validate(rules, RULES)
    alerts = [rule["alert"] for group in rules["groups"] for rule in group["rules"]]
    assert len(set(alerts)) == len(alerts) > 10
    rules["groups"][0]["rules"][0]["fore"] = "1m"
    with pytest.raises(jsonschema.ValidationError, match="fore"):
        jsonschema.validate(rules, RULES)


def unknown_fields(given: object, kept: object, at: str = "") -> Iterator[str]:
    """Where a document has what the types of Grafana did not keep of it."""
    if isinstance(given, dict) and isinstance(kept, dict):
        for name, value in given.items():
            yield from unknown_fields(value, kept[name], f"{at}.{name}") if name in kept else [f"{at}.{name}"]
    elif isinstance(given, list) and isinstance(kept, list) and len(given) == len(kept):
        for number, pair in enumerate(zip(given, kept, strict=True)):
            yield from unknown_fields(*pair, f"{at}[{number}]")
    elif given != kept:
        yield at


def test_the_dashboard_has_what_the_types_of_grafana_know():
    plugins.register_default_plugins()
    text = (DEPLOY / "grafana-dashboard.json").read_text(encoding="utf-8")

    def unknown(given: str) -> list[str]:
        kept = json.dumps(Dashboard.from_json(json.loads(given)), cls=JSONEncoder)
        return list(unknown_fields(json.loads(given), json.loads(kept)))

    assert unknown(text) == []
    assert unknown(text.replace('"legendFormat"', '"legend_format"', 1)) == [".panels[0].targets[0].legend_format"]
    panels = json.loads(text)["panels"]
    assert all(runtime.panelcfg_config(panel["type"]) for panel in panels)
    places = [panel["gridPos"] for panel in panels]
    assert all(place["x"] in range(24) and place["w"] in range(1, 25 - place["x"]) for place in places), "a row has 24 columns"


def metrics_of(expression: str) -> set[str]:
    """The metrics of an expression of PromQL, which is parsed for that."""
    promql_parser.parse(expression)
    return set(re.findall(r"\b(?:kafka|logdb)_\w+", expression))


def test_alerts_and_dashboard_name_metrics_that_there_are(tmp_path):
    (rules,) = documents("alerts.yml")
    alerts = [rule["expr"] for group in rules["groups"] for rule in group["rules"]]
    dashboard = json.loads((DEPLOY / "grafana-dashboard.json").read_text(encoding="utf-8"))
    plots = [target["expr"].replace("$__rate_interval", "5m") for panel in dashboard["panels"] for target in panel["targets"]]
    with logdb.testing.broker() as broker, logdb.serve(broker.database, http="127.0.0.1:0") as server:
        answer = urllib.request.urlopen(f"{server.addresses[0]}/metrics")
        with contextlib.closing(answer):
            page = answer.read().decode()
    found = set(re.findall(r"^# TYPE (\w+) ", page, re.MULTILINE))
    found |= {f"{name}_bucket" for name in re.findall(r"^# TYPE (\w+) histogram", page, re.MULTILINE)}
    assert set().union(*map(metrics_of, alerts)) <= found
    assert set().union(*map(metrics_of, plots)) <= found
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])
