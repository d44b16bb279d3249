"""Read a catalogue's LMDB file in a process of its own: ``python -I child.py``.

A damaged page can kill the process that follows its pointers (SIGSEGV, SIGBUS), so this program reads, and ``dump`` takes what
it printed.  The program imports nothing of logdb and prints entries undecoded.

    in    one line of JSON: {"path": directory, "lock": bool, "sys_path": [...], "cpu_s": seconds of a processor}
    out   lines of JSON: the first is ["ready"]; then ["error", text], ["entry", key, value] (base64), and as
          the last ["end", entries met, entries that LMDB counts]

Without ["ready"] the program could not start, which says nothing about the file.  Nor does an exception, such as one for the want of
memory; but if a meta page is damaged, LMDB may want more memory than there is for the pages that it claims.  SIGXCPU ends a walk
that takes too long: damaged pages may form a cycle.

If py-lmdb has its verifier, that first checks the pages against each other without LMDB: also the lists of free pages, which
no read touches but which say where the next transaction writes.
"""

import base64
import errno
import json
import os
import resource
import sys

_WANTS = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EACCES, errno.EPERM)
"""The system gave too little: this says nothing about the file."""
_WANTS_TOLD = tuple(map(os.strerror, _WANTS))


def say(*line: object) -> None:
    """Print one line, flushed: a signal must not lose it."""
    os.write(1, json.dumps(line).encode("ascii") + b"\n")


def check_pages(path: str) -> bool:
    """False if a meta page is damaged: LMDB may then want any amount of memory."""
    try:
        from lmdb import verify
    except ImportError:
        return True
    plausible = True
    try:
        problems = verify.verify(path)  # type: ignore[no-untyped-call]  # py-lmdb's stubs leave it out
    except (verify.VerifyError, OSError) as error:
        if isinstance(error, OSError) and error.errno in _WANTS:
            raise
        plausible, problems = False, [str(error)]
    for problem in problems:
        say("error", problem)
    return plausible


def walk(path: str, *, lock: bool, plausible: bool) -> None:
    import lmdb

    try:
        environment = lmdb.open(path, readonly=True, create=False, lock=lock, max_readers=4096)
        with environment.begin() as txn, txn.cursor() as cursor:
            expected = txn.stat(environment.open_db(txn=txn))["entries"]
            met, last = 0, b""
            for key, value in cursor:
                if key <= last:
                    say("error", f"key {key!r} follows {last!r}")
                    break
                say("entry", base64.b64encode(key).decode("ascii"), base64.b64encode(value).decode("ascii"))
                met, last = met + 1, key
        say("end", met, expected)
    except lmdb.MemoryError as error:
        if plausible:
            raise
        say("error", f"{type(error).__name__}: {error}")
    except (lmdb.LockError, lmdb.ReadersFullError, lmdb.TlsFullError):
        raise
    except lmdb.Error as error:
        if str(error).endswith(_WANTS_TOLD):
            raise
        say("error", f"{type(error).__name__}: {error}")


def main() -> None:
    request = json.loads(sys.stdin.readline())
    sys.path[:] = request["sys_path"]
    import lmdb  # noqa: F401 - or nothing can be read

    say("ready")
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a crash is expected here
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (request["cpu_s"] if hard < 0 else min(request["cpu_s"], hard), hard))
    plausible = request["lock"] or check_pages(request["path"])
    walk(request["path"], lock=request["lock"], plausible=plausible)


if __name__ == "__main__":
    main()
