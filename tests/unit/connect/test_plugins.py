import pytest

from logdb_connect.connectors.file import FileStreamSourceConnector
from logdb_connect.errors import ConfigError
from logdb_connect.plugins import Plugins, kind_of

PLUGIN = """
from logdb_connect import SinkConnector, SinkTask

class Task(SinkTask):
    def put(self, records): pass

class ShoutSinkConnector(SinkConnector):
    task_class = Task
    def task_configs(self, max_tasks): return [{}]
"""

CONVERTER = """
class ShoutConverter:
    def configure(self, config): pass
    def from_connect(self, topic, schema, value): return b""
    def to_connect(self, topic, data): return None, None
"""
TRANSFORM = """
class ShoutTransform:
    def configure(self, config): pass
    def apply(self, record): return record
"""


@pytest.mark.parametrize(
    "name",
    [
        "FileStreamSource",
        "FileStreamSourceConnector",
        "org.apache.kafka.connect.file.FileStreamSourceConnector",
        "logdb_connect.connectors.file:FileStreamSourceConnector",
    ],
)
def test_a_connector_has_many_names(name):
    plugins = Plugins()
    assert plugins.connector(name) is FileStreamSourceConnector
    assert plugins.name_of(FileStreamSourceConnector) == "org.apache.kafka.connect.file.FileStreamSourceConnector"


def test_an_unknown_class_lists_the_known_ones():
    with pytest.raises(ConfigError, match=r"NoSuchConnector, available connectors are: .*FileStreamSourceConnector"):
        Plugins().connector("NoSuchConnector")
    with pytest.raises(ConfigError, match=r"; did you mean FileStreamSink\?$"):
        Plugins().connector("FileStreamSnk")
    with pytest.raises(ConfigError, match=r"; did you mean io\.confluent\.connect\.s3\.S3SinkConnector( or \S+)?\?$"):
        Plugins().connector("io.confluent.connect.s3.s3sinkConnector")
    with pytest.raises(ConfigError, match=r"cannot be imported|needs the package"):
        Plugins().connector("no_such_module:Class")
    with pytest.raises(ConfigError, match=r"is no connector; it must have task_configs, and a task_class with poll"):
        Plugins().connector("collections:OrderedDict")


def test_a_directory_of_plugins_and_one_that_is_broken(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr("sys.path", ["", *__import__("sys").path])
    (tmp_path / "shouting_plugin.py").write_text(PLUGIN)
    (tmp_path / "broken_plugin.py").write_text("import no_such_package\n")
    plugins = Plugins([str(tmp_path)])
    made = plugins.connector("ShoutSink")
    assert kind_of(made) == "sink"
    assert ("shouting_plugin:ShoutSinkConnector", "sink") in [(one.name, one.kind) for one in plugins.all()]
    assert "broken_plugin" in caplog.text


def test_a_worker_may_allow_some_connectors_only():
    plugins = Plugins(allowed=["FileStreamSink"])
    plugins.connector("org.apache.kafka.connect.file.FileStreamSinkConnector")
    with pytest.raises(ConfigError, match=r"allows only FileStreamSink \(connector.classes.allowed\)"):
        plugins.connector("FileStreamSource")


def test_entry_points_of_installed_packages(tmp_path, monkeypatch):
    (tmp_path / "installed_plugins.py").write_text(PLUGIN + CONVERTER + TRANSFORM)
    metadata = tmp_path / "plugins-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: plugins\nVersion: 1.0\n")
    points = {"connectors": "ShoutSinkConnector", "converters": "ShoutConverter", "transforms": "ShoutTransform"}
    lines = [f"[logdb.{group}]\nOf{name} = installed_plugins:{name}\n" for group, name in points.items()]
    (metadata / "entry_points.txt").write_text("".join(lines))
    monkeypatch.syspath_prepend(tmp_path)
    plugins = Plugins()
    for group, kinds in (("connectors", ("source", "sink")), ("converters", ("converter",)), ("transforms", ("transformation",))):
        for name in (f"Of{points[group]}", f"installed_plugins:{points[group]}"):
            assert plugins.find(name, kinds, "setting").__name__ == points[group]
