"""@platformatic/kafka from its package, on a broker for tests: it names topics by ids, and consumes in no other way."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

import logdb.testing
from support.franz_go import fetched

pytestmark = pytest.mark.foreign


def test_records_are_produced_and_a_group_goes_on_where_it_was(tmp_path):
    shutil.copytree(Path(__file__).with_name("platformatic"), tmp_path, dirs_exist_ok=True)
    fetched(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline"], tmp_path)
    with logdb.testing.broker() as broker:
        broker.database.create_topic("t")
        call = ["node", tmp_path / "program.mjs", broker.bootstrap_servers, "t", "100"]
        done = subprocess.run(call, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stdout + done.stderr
        assert json.loads(done.stdout) == [[str(number) for number in range(100)], ["later"]]
        assert broker.database._session.fetch_offsets("g")["t", 0].offset == 101
