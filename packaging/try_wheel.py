"""Tries an installed logdb, in an environment that has no compiler: append, read, compress, transact, reopen, verify.

python packaging/try_wheel.py
"""

import platform
import subprocess
import sys
import tempfile

import logdb
from logdb._native import _core, _hot

COUNT = 10_000


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
        with logdb.open(path, mode="r") as db:
            for codec in ("uncompressed", "gzip", "zstd"):
                found = [record.value for record in db.log(codec, partition=0).read(0)]
                assert found[: COUNT + 100] == [b"%d" % number for number in range(COUNT + 100)], codec
        subprocess.run([sys.executable, "-m", "logdb.cli", "--data-dir", path, "verify"], check=True, stdout=subprocess.DEVNULL)
    libc = platform.libc_ver()[0] or "musl"
    print(f"logdb works: CPython {platform.python_version()}, {platform.machine()}, {libc}, {_core.__file__}, {_hot.__file__}")


if __name__ == "__main__":
    main()
