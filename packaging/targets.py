"""What wheels are built for: versions of CPython, and platforms."""

from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
VERSIONS = ("3.11", "3.12", "3.13", "3.14")
SUITES = {"3.11": "bookworm", "3.13": "trixie", "3.14": "sid"}  # of Debian, by the CPython that they have


class Target(NamedTuple):
    """A platform of wheels.

    Attributes:
        platform: Its tag in the name of a wheel.
        zig: What zig calls it.
        suffix: Of an extension module there, between "cpython-311-" and ".so".
    """

    platform: str
    zig: str
    suffix: str

    @property
    def machine(self) -> str:
        return self.suffix.split("-", maxsplit=1)[0]


TARGETS = tuple(
    Target(f"{platform}_{machine}", f"{machine}-linux-{zig}", f"{machine}-linux-{libc}")
    for platform, zig, libc in (("manylinux_2_17", "gnu.2.17", "gnu"), ("musllinux_1_2", "musl", "musl"))
    for machine in ("x86_64", "aarch64")
)


def tag_of(version: str) -> str:
    return f"cp{version.replace('.', '')}"
