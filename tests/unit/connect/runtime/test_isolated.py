"""The side of a task's process: its log lines."""

import json
import logging
import os

from logdb_connect.runtime.isolated import _Lines, _Worker


def test_a_wrong_log_call_of_a_plugin_raises_nothing(capsys):
    reader, writer = os.pipe()
    handler = _Lines(_Worker(writer))
    for given in ("x", 5):
        handler.handle(logging.makeLogRecord({"name": "a.plugin", "levelno": logging.INFO, "msg": "%d", "args": (given,)}))
    os.close(writer)
    with open(reader, "rb") as messages:
        assert [json.loads(line)["text"] for line in messages] == ["5"]
    assert "Logging error" in capsys.readouterr().err
