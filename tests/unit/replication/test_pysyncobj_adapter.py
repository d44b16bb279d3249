import ast
import inspect
import pathlib
import subprocess
import sys

import pytest
from pysyncobj import syncobj
from pysyncobj.version import VERSION

import logdb_replication
from logdb_replication.raft import pysyncobj_adapter
from logdb_replication.raft.pysyncobj_adapter import PYSYNCOBJ, Adapter

PRIVATE = {name.removeprefix("_SyncObj__"): value for name, value in vars(Adapter).items() if name.startswith("_SyncObj__")}
FIELDS = [name for name, value in PRIVATE.items() if isinstance(value, property)]
METHODS = [name for name, value in PRIVATE.items() if callable(value)]
TICK = inspect.getsource(syncobj.SyncObj._onTick)


def test_the_version_that_is_known():
    assert VERSION == PYSYNCOBJ == "0.3.17"


def test_another_version_is_refused_by_name():
    program = (
        "import pysyncobj.version\npysyncobj.version.VERSION = '0.3.18'\n"
        "try:\n    import logdb_replication.raft.node\nexcept Exception as error:\n    print(type(error).__name__, error)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.stdout.startswith("UnsupportedRaft pysyncobj 0.3.18 is installed"), done.stderr


def test_twelve_private_names_and_no_more():
    assert (len(FIELDS), len(METHODS), len(PRIVATE)) == (9, 3, 12)


@pytest.mark.parametrize("name", FIELDS)
def test_a_private_field_is_there(name):
    assert f"self.__{name} = " in inspect.getsource(syncobj.SyncObj.__init__)
    assert f"self.__{name}" in inspect.getsource(syncobj.SyncObj), name


@pytest.mark.parametrize("name", METHODS)
def test_a_private_method_is_there_and_the_tick_calls_it(name):
    assert callable(getattr(syncobj.SyncObj, f"_SyncObj__{name}"))
    assert f"self.__{name}()" in TICK


def test_a_tick_reads_the_clock_by_the_name_that_is_known():
    assert "monotonicTime()" in TICK
    assert "self._onTick(" in inspect.getsource(syncobj.SyncObj.doTick)


def test_no_other_module_uses_a_private_name():
    for path in pathlib.Path(logdb_replication.__file__).parent.rglob("*.py"):
        if path.name != "pysyncobj_adapter.py":
            assert "_SyncObj__" not in path.read_text(), path


def test_the_adapter_uses_no_private_name_that_it_does_not_define():
    tree = ast.parse(inspect.getsource(pysyncobj_adapter))
    used = {found.attr for found in ast.walk(tree) if isinstance(found, ast.Attribute) and found.attr.startswith("_SyncObj__")}
    assert used <= {f"_SyncObj__{name}" for name in PRIVATE}
