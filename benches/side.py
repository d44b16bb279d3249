"""One operation of one side in this process: ``python -m benches.side SIDE OPERATION COUNT VALUE_SIZE DIRECTORY``.

Prints the measure as one line of JSON.
"""

import json
import sys
from pathlib import Path

from benches.peers import side
from benches.workload import Work


def main(name: str, operation: str, count: str, value_size: str, directory: str) -> None:
    work = Work(Path(directory), int(count), int(value_size))
    print(json.dumps(side(name).OPERATIONS[operation](work)._asdict()))


if __name__ == "__main__":
    main(*sys.argv[1:])
