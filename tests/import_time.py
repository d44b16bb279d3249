"""`import logdb` takes less than 50 ms of a processor; part of `make check`.

The least of 20 fresh processes counts: a busy machine can only make it slower.
"""

import os
import subprocess
import sys

LIMIT_MS = 50
PROGRAM = "import time; began = time.process_time(); import logdb; print((time.process_time() - began) * 1000)"


def import_ms() -> float:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}  # users have .pyc files
    return float(subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, check=True).stdout)


least_ms = min(import_ms() for _ in range(20))
print(f"import logdb: {least_ms:.1f} ms, of {LIMIT_MS} allowed")
sys.exit(least_ms > LIMIT_MS)
