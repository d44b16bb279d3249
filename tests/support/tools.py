"""Programs of the machine that some tests call.  README.md names them; a test skips without its own."""

import shutil

import pytest

DEBIAN_PACKAGES = {"ip": "iproute2", "systemd-analyze": "systemd"}  # where a package has another name than its program


def needs(*programs: str) -> pytest.MarkDecorator:
    """A mark that skips a test and names each program that is missing, with its Debian package."""
    missing = [program for program in programs if shutil.which(program) is None]
    packages = " ".join(DEBIAN_PACKAGES.get(program, program) for program in missing)
    return pytest.mark.skipif(bool(missing), reason=f"{', '.join(missing)} not installed (Debian: {packages})")
