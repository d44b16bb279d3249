"""What holds for all tests."""

import gc
import os
import signal
import uuid
from pathlib import Path

import pytest
from hypothesis import settings

from benches.peers import SHORT_LIVED
from logdb import testing
from logdb.broker.timers import Timers
from logdb.cli.terminal.descriptors import take_descriptors
from logdb.store import cleaner, retention
from logdb_replication import directory
from support import levels, ports, three_brokers

# A deadline per example measures the machine's load, not the code; a failure prints how to run it again.
settings.register_profile("logdb", deadline=None, print_blob=True, max_examples=15 * int(os.environ.get("LOGDB_TEST_SCALE", "1")))
settings.load_profile("logdb")


@pytest.fixture(scope="module", autouse=True)
def late_background(request):
    """Where tests make every call themselves (``quiet``), nothing begins in the background.

    A coordinator's timers above all: a retry that comes due on a slow machine would be what the simulated death ends, and its
    request would wait for ever.
    """
    with pytest.MonkeyPatch.context() as patch:
        if hasattr(request.module, "quiet"):
            patch.setattr(Timers, "start", lambda _: None)
            for module in (cleaner, retention):
                patch.setattr(module, "FIRST_ROUND_MS", 3_600_000)
        yield


@pytest.fixture
def topic():
    """A name that no other run of the test has: on a server that tests share, a test may run twice (``levels.OTHERS_TIMING``)."""
    return f"t-{uuid.uuid4()}"


def pytest_generate_tests(metafunc):
    """Run what asks for a place on a path and on a URL, unless it looks into files (mark ``local``)."""
    if "place" in metafunc.fixturenames:
        local = metafunc.definition.get_closest_marker("local")
        metafunc.parametrize("place", ["path"] if local else ["cluster"] if three_brokers.Shared.chosen else ["path", "url"])


def pytest_addoption(parser):
    parser.addoption(
        "--brokers", type=int, choices=[1, 3], default=1, help="3: the suites that make sense there, on a cluster of three nodes"
    )
    parser.addoption(
        "--spark-machines", action="store_true", help="Spark's executors run on machines of their own: ON_MACHINES of the Makefile"
    )
    parser.addoption("--level", choices=levels.LEVELS, help="what make quick, test, check or fault runs")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config):
    """``-n auto``: half as many again as processors, where tests wait for elections, for syncs and for other programs."""
    waits = config.getoption("--level") in {"test", "check"} or config.getoption("--brokers") == 3
    return len(os.sched_getaffinity(0)) * 3 // 2 if waits and hasattr(os, "sched_getaffinity") else None


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    if config.getoption("dist") != "loadgroup":
        return None
    from support.workers import Scheduling

    config.option.loadscopereorder = False  # the order is ours
    return Scheduling(config, log)


def pytest_ignore_collect(collection_path, config):
    """Import no file of which no test would run."""
    if collection_path.suffix != ".py" or not collection_path.name.startswith("test_"):
        return None
    key = collection_path.relative_to(config.rootpath / "tests").as_posix()
    if three_brokers.Shared.chosen and not three_brokers.is_chosen(key):
        return True
    return levels.leaves_out(config.getoption("--level"), key) or None


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Look for no garbage while thousands of tests are collected, nor among them later: there is none."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


def pytest_collection_modifyitems(config, items):
    levels.choose(config, items)
    for item in filter(levels.may_run_twice, items):
        item.add_marker(pytest.mark.flaky(reruns=1))
    if three_brokers.Shared.chosen:
        chosen = three_brokers.choose(items)
        config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
        items[:] = chosen


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    if three_brokers.Shared.chosen:
        three_brokers.begins(item)


class FailuresAtOnce:
    """Prints each failure when it happens: a run that is cut off has named it, and one that passes at its second run is seen."""

    def __init__(self, config):
        self._config = config

    def pytest_runtest_logreport(self, report):
        if report.outcome in {"failed", "rerun"} and (terminal := self._config.pluginmanager.get_plugin("terminalreporter")):
            terminal.ensure_newline()
            terminal.write_line(f"{report.outcome.upper()} {report.nodeid} ({report.when})")
            terminal.write_line(report.longreprtext[-2_000:])


def pytest_configure(config):
    take_descriptors()  # as logdb serve: a shell has 1,024, and tests open thousands of logs and connections
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a job in the background; its children would inherit that
        signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.setdefault("SPARK_CONF_DIR", str(Path(__file__).parent / "support" / "spark_conf"))
    for program in ("MAVEN_OPTS", "SPARK_LAUNCHER_OPTS"):
        os.environ.setdefault(program, " ".join(SHORT_LIVED))
    directory._free_port = lambda taken: ports.free_port()
    if config.getoption("--brokers") == 3:
        three_brokers.Shared.chosen, testing.broker = True, three_brokers.broker
    if not hasattr(config, "workerinput"):  # not in the workers of xdist
        config.pluginmanager.register(FailuresAtOnce(config))


def pytest_terminal_summary(terminalreporter, config):
    """Print what tests have to tell, counts mostly; under xdist a test's own output is not seen."""
    told = [value for report in terminalreporter.getreports("passed") for name, value in report.user_properties if name == "told"]
    for line in sorted(told):
        terminalreporter.write_line(line)
    for line in levels.left_out(config.getoption("--level")):
        terminalreporter.write_line(line)
