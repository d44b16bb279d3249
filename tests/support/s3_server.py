"""An S3 server that keeps its objects in a file, as a process that can be killed: gofakes3, compiled by Go."""

import contextlib
import subprocess
import urllib.error
import urllib.request
from pathlib import Path

from support.franz_go import fetched
from support.moto_server import S3
from support.ports import free_port
from support.waiting import until

SOURCE = Path(__file__).parents[1] / "integration" / "connect" / "s3_server"


class S3Server:
    """The server; it starts again at the same port, with its objects.  Skips the test where there is no Go."""

    def __init__(self, directory: Path) -> None:
        fetched(["go", "mod", "download", "-modcacherw"], SOURCE)
        self._program, self._file, self._port = directory / "s3-server", directory / "objects.bolt", free_port()
        built = subprocess.run(["go", "build", "-o", self._program, "."], capture_output=True, text=True, timeout=300, cwd=SOURCE)
        assert built.returncode == 0, built.stderr
        self.s3 = S3(f"http://127.0.0.1:{self._port}")
        self.start()

    def start(self) -> None:
        self._process = subprocess.Popen([self._program, self._file, f"127.0.0.1:{self._port}"], stderr=subprocess.DEVNULL)
        until(self._answers, "the S3 server answers")

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def _answers(self) -> bool:
        assert self._process.poll() is None
        with contextlib.suppress(urllib.error.HTTPError):
            try:
                urllib.request.urlopen(self.s3.url).close()
            except urllib.error.HTTPError:
                raise
            except OSError:
                return False
        return True
