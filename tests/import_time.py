"""`import logdb` stays under 50 ms over the bare interpreter, and brings nothing heavy; part of `make check`.

The least of 20 fresh processes counts: a machine that is busy can only make it slower.
"""

import subprocess
import sys

LIMIT_MS = 50
IMPORT = "import time; began = time.perf_counter(); import logdb; print((time.perf_counter() - began) * 1000)"

least_ms = min(float(subprocess.run([sys.executable, "-c", IMPORT], capture_output=True, check=True, text=True).stdout) for _ in range(20))
print(f"import logdb: {least_ms:.1f} ms, of {LIMIT_MS} allowed")
sys.exit(least_ms > LIMIT_MS)
