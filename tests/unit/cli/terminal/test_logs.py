import json
import logging
import re

from logdb.cli.terminal import logs

MOMENT = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00"


def test_words(capsys):
    with logs.words():
        logging.getLogger("logdb.log.recovery").warning("%s ends at %d", "x.log", 7)
        logging.getLogger("logdb.log.recovery").info("not this")
        logging.getLogger("py4j").warning("nor this")
    assert capsys.readouterr() == ("", "logdb: x.log ends at 7\n")


def test_lines_have_time_level_and_who_says_so(capsys):
    with logs.words(), logs.lines(as_json=False):
        logging.getLogger("asyncio").error("late")
        logging.getLogger("logdb.cli.serving.serve").warning("serving")
    first, second = capsys.readouterr().err.splitlines()
    assert re.fullmatch(MOMENT + " ERROR asyncio: late", first)
    assert re.fullmatch(MOMENT + r" WARNING logdb\.cli\.serving\.serve: serving", second)


def test_lines_of_json_are_one_object_each(capsys):
    with logs.lines(as_json=True):
        try:
            raise KeyError("gone")
        except KeyError:
            logging.getLogger("logdb.x").exception("a\nb")
    (line,) = capsys.readouterr().err.splitlines()
    said = json.loads(line)
    assert re.fullmatch(MOMENT, said["time"])
    assert (said["level"], said["logger"], said["message"]) == ("ERROR", "logdb.x", "a\nb")
    assert "KeyError: 'gone'" in said["traceback"]


def test_afterwards_all_is_as_before():
    loggers = [logging.getLogger(name) for name in ("", "logdb", "logdb_http_api", "logdb_kafka_api", "logdb_spark_source")]

    def handlers():
        return [list(logger.handlers) for logger in loggers]

    before = handlers()
    with logs.words():
        in_words = handlers()
        with logs.lines(as_json=False):
            assert [len(now) - len(then) for now, then in zip(handlers(), before, strict=True)] == [1, 0, 0, 0, 0]
        assert handlers() == in_words != before
    assert handlers() == before
