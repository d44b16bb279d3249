"""Tries an installed logdb, in an environment that has no compiler: append, read, compress, transact, be killed, reopen, verify.

python packaging/try_wheel.py
"""

import platform
import signal
import subprocess
import sys
import tempfile

import logdb
from logdb._native import _core, _hot

COUNT = 10_000
KILLED = """
import os, signal, sys, logdb
with logdb.open(sys.argv[1]) as db:
    db.log("zstd").append(b"acknowledged", durability="fsync")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def main() -> None:
    with tempfile.TemporaryDirectory() as path:
        with logdb.open(path, durability="fsync") as db:
            for codec in ("uncompressed", "gzip", "zstd"):
                db.create_topic(codec, config={"compression.type": codec})
                log = db.log(codec, partition=0)
                log.append_many([b"%d" % number for number in range(COUNT)])
                for number in range(COUNT, COUNT + 100):
                    log.append(b"%d" % number)
            with db.transaction("wheel") as transaction:
                transaction.send("zstd", b"in a transaction")
        killed = subprocess.run([sys.executable, "-c", KILLED, path], check=False)
        assert killed.returncode == -signal.SIGKILL, killed
        with logdb.open(path) as db:
            assert [record.value for record in db.log("zstd").tail(1)] == [b"acknowledged"]
        with logdb.open(path, mode="r") as db:
            for codec in ("uncompressed", "gzip", "zstd"):
                found = [record.value for record in db.log(codec, partition=0).read(0)]
                assert found[: COUNT + 100] == [b"%d" % number for number in range(COUNT + 100)], codec
        for arguments in (("--version",), ("--data-dir", path, "verify")):
            subprocess.run([sys.executable, "-m", "logdb.cli", *arguments], check=True)
    libc = "glibc" if platform.libc_ver()[0] == "glibc" else "musl"
    print(f"logdb works: CPython {platform.python_version()}, {platform.machine()}, {libc}, {_core.__file__}, {_hot.__file__}")


if __name__ == "__main__":
    main()
