"""A voter in a process of its own.  argv: a JSON object of number, ports and directory; then it obeys lines on stdin.

propose ID KEY VALUE    sets a register of the state machine; answers {"id", "ok": index} or {"id", "error": class}
read ID KEY             a barrier, then the register: {"id", "ok": [index, value]}
describe ID             {"id", "ok": …}
"""

import json
import sys
import threading

from logdb.errors import LogdbError
from logdb_replication.raft.quorum import Quorum, QuorumOptions, Voter


class Registers:
    """Keys with their history: index and value of each write."""

    def __init__(self) -> None:
        self.history: list[tuple[int, str, str]] = []

    def apply(self, index: int, command: bytes) -> bytes:
        key, value = json.loads(command)
        self.history.append((index, key, value))
        return b"%d" % index

    def snapshot(self) -> bytes:
        return json.dumps(self.history).encode()

    def restore(self, index: int, state: bytes) -> None:
        self.history = [tuple(item) for item in json.loads(state)]


def main() -> None:
    asked = json.loads(sys.argv[1])
    registers, lock = Registers(), threading.Lock()
    number = asked["number"]
    quorum = Quorum(
        number,
        ("127.0.0.1", asked["ports"][number - 1]),
        asked["directory"],
        registers.apply,
        registers.snapshot,
        registers.restore,
        secret=asked["secret"].encode(),
        peers=[Voter(*peer) for peer in asked.get("peers", ())],
        options=QuorumOptions(snapshot_bytes=20_000, entries_kept=50),
    )

    def answer(word: str, name: str, rest: list[str]) -> None:
        try:
            if word == "propose":
                ok = int(quorum.propose(json.dumps(rest).encode(), 2))
            elif word == "read":
                index = quorum.barrier(2)
                ok = [index, next((value for _, key, value in reversed(registers.history) if key == rest[0]), None)]
            elif word == "history":
                ok = registers.history
            elif word in {"add", "remove"}:
                voter = Voter(*json.loads(rest[0]))
                ok = (quorum.add_voter if word == "add" else quorum.remove_voter)(voter, 5)
            else:
                ok = quorum.describe()
            line = json.dumps({"id": name, "ok": ok})
        except LogdbError as error:
            line = json.dumps({"id": name, "error": type(error).__name__, "text": str(error)})
        with lock:
            print(line, flush=True)

    print(json.dumps({"id": "ready"}), flush=True)
    for line in sys.stdin:
        word, name, *rest = line.split()
        threading.Thread(target=answer, args=(word, name, rest), daemon=True).start()
    quorum.close()


if __name__ == "__main__":
    main()
