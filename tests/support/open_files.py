"""What a process has open."""

import os


def open_below(path: str | os.PathLike[str]) -> list[str]:
    """The files below a directory that this process has open, or mapped."""
    found = []
    for fd in os.listdir("/proc/self/fd"):
        try:
            found.append(os.readlink(f"/proc/self/fd/{fd}"))
        except FileNotFoundError:
            continue  # that of the listing
    with open("/proc/self/maps") as maps:
        found += [line.split(maxsplit=5)[-1].strip() for line in maps]
    return [name for name in found if name.startswith(f"{path}/")]
