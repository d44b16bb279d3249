"""A cluster whose nodes may lose their power: of what was not synced any part may be gone (``power_cut_node``)."""

import filecmp
import os
import shutil
import signal
import sys
import uuid
from pathlib import Path

from support import power_cut_node
from support.cluster import NODES, SPARE, Cluster, Network

_CUT_S = 60


class PoweredCluster(Cluster):
    """``seed`` says what the disks keep, ``lost_count`` how many files were not whole any more."""

    def __init__(self, directory: Path, network: Network, library: str | None = None, seed: int = 1) -> None:
        super().__init__(directory, network, library)
        self.seed, self.lost_count = seed, 0
        for node in (*NODES, SPARE):
            self._boot(node)

    def _boot(self, node: int) -> None:
        self.data(node).with_suffix(".boot").write_text(uuid.uuid4().hex)

    def program(self, node: int) -> list[str]:
        self.seed += 1
        return [sys.executable, power_cut_node.__file__, "broker", str(self.seed), str(self.data(node))]

    def environment(self, node: int) -> dict[str, str]:
        places = [str(Path(__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
        return super().environment(node) | {"PYTHONPATH": os.pathsep.join(places)}

    def cut_power(self, *nodes: int) -> None:
        """Of nodes at once; what their disks keep is what they find."""
        for node in nodes:
            os.kill(self.processes[node].pid, signal.SIGUSR1)
        for node in nodes:
            assert self.processes[node].wait(_CUT_S) == -signal.SIGKILL, self.errors(node)
            del self.processes[node]
        for node in nodes:
            data, kept = self.data(node), self.data(node).with_suffix(".cut")
            self.lost_count += sum(_differs(path, kept / path.relative_to(data)) for path in data.rglob("*") if path.is_file())
            shutil.rmtree(data)
            kept.rename(data)
            self._boot(node)


def _differs(path: Path, kept: Path) -> bool:
    return path.name != "lock.mdb" and not (kept.exists() and filecmp.cmp(path, kept, shallow=False))
