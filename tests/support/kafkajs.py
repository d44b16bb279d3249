"""The program with kafkajs beside tests/integration/kafka, and its packages."""

import shutil
from pathlib import Path

from support.franz_go import fetched

SOURCE = Path(__file__).parents[1] / "integration" / "kafka" / "kafkajs"


def kafkajs(directory: Path) -> list[object]:
    """The command of the program, once its packages are fetched into ``directory``."""
    shutil.copytree(SOURCE, directory, dirs_exist_ok=True)
    fetched(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline"], directory)
    return ["node", directory / "program.mjs"]
