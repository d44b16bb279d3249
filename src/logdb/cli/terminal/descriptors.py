"""The limit of descriptors of this process, which belongs to the command: the library leaves it alone."""

import contextlib
import resource

_COUNT_MAX = 1 << 20


def take_descriptors() -> None:
    """Raise the limit of descriptors to the system's maximum, or a million: each connection and each open file needs one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _COUNT_MAX if hard == resource.RLIM_INFINITY else min(hard, _COUNT_MAX)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(ValueError, OSError):  # some systems report no limit, and have one
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
