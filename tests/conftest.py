"""What holds for all tests."""

import pytest
from hypothesis import settings

from logdb.store import cleaner, retention

# A deadline per example measures the machine's load, not the code; a failure prints how to run it again.
settings.register_profile("logdb", deadline=None, print_blob=True)
settings.load_profile("logdb")


@pytest.fixture(scope="module", autouse=True)
def late_background(request):
    """Where tests make every call themselves (``quiet``), nothing begins in the background between the opening and that."""
    with pytest.MonkeyPatch.context() as patch:
        if hasattr(request.module, "quiet"):
            for module in (cleaner, retention):
                patch.setattr(module, "FIRST_ROUND_MS", 3_600_000)
        yield


def pytest_generate_tests(metafunc):
    """Run what asks for a place on a path and on a URL, unless it looks into files (mark ``local``)."""
    if "place" in metafunc.fixturenames:
        metafunc.parametrize("place", ["path"] if metafunc.definition.get_closest_marker("local") else ["path", "url"])


def pytest_terminal_summary(terminalreporter):
    """Print what tests have to tell, counts mostly; under xdist a test's own output is not seen."""
    told = [value for report in terminalreporter.getreports("passed") for name, value in report.user_properties if name == "told"]
    for line in sorted(told):
        terminalreporter.write_line(line)
