"""Walk a catalogue's LMDB file in a process of its own: ``python -I child.py``.

A damaged page may kill whoever follows its pointers (SIGSEGV, SIGBUS); so this
program does, and ``dump`` reads what it managed to print.  It imports nothing
of logdb and checks nothing but the order of keys.

    in    one line of JSON: {"path": directory, "lock": bool, "sys_path": [...]}
    out   lines of JSON: ["entry", key, value] (base64), ["error", text], and
          ["end", entries met, entries that LMDB counts] as the last
"""

import base64
import json
import os
import sys


def say(*line: object) -> None:
    """One line, at once: nothing may be left in a buffer when a signal comes."""
    os.write(1, json.dumps(line).encode("ascii") + b"\n")


def main() -> None:
    request = json.loads(sys.stdin.readline())
    sys.path[:] = request["sys_path"]
    import resource

    import lmdb

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        environment = lmdb.open(request["path"], readonly=True, create=False, lock=request["lock"], max_readers=4096)
        expected = environment.stat()["entries"]
        met, last = 0, b""
        with environment.begin() as txn, txn.cursor() as cursor:
            for key, value in cursor:
                if key <= last:
                    say("error", f"key {key!r} follows {last!r}")
                    break
                say("entry", base64.b64encode(key).decode("ascii"), base64.b64encode(value).decode("ascii"))
                met, last = met + 1, key
        say("end", met, expected)
    except lmdb.Error as error:
        say("error", f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    main()
