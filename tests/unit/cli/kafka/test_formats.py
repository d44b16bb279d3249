import json

import pytest

from logdb.cli.kafka.formats import console, envelope, kcat, unescape

TYPES = {"t": "CreateTime"}


class Fake:
    offset, timestamp_ms, leader_epoch, topic, partition = 7, 1_700_000_000_000, 3, "t", 2

    def __init__(self, key=b"k", value=b"v", headers=()):
        self.key, self.value, self.headers = key, value, headers


def test_kcat_letters():
    record = Fake(b"key", b"value", (("a", b"1"), ("b", None)))
    assert kcat(r"%t %p %o %k %s %T %h %K %S%%\n")(record) == b"t 2 7 key value 1700000000000 a=1,b=NULL 3 5%\n"
    assert kcat("%R%s")(record) == b"\0\0\0\x05value"


def test_kcat_null_key_and_value():
    record = Fake(None, None)
    assert kcat("%k|%s|%K|%S|%R")(record) == b"||-1|-1|\xff\xff\xff\xff"
    assert kcat("%k|%s", null=b"NULL")(record) == b"NULL|NULL"


@pytest.mark.parametrize("text", ["%x", "%", "%s %"])
def test_kcat_unknown_letter_names_the_known(text):
    with pytest.raises(ValueError, match=r"format .*must be .*%t, %p"):
        kcat(text)


def test_format_keeps_percent_and_text_of_any_alphabet():
    assert kcat("100%% größer %s")(Fake()) == "100% größer v".encode()
    assert kcat("%%b%%")(Fake()) == b"%b%"


@pytest.mark.parametrize(
    ("text", "data"),
    [(r"\n", b"\n"), (r"\t\r\0", b"\t\r\0"), (r"\x1f\xff", b"\x1f\xff"), (r"\\n", b"\\n"), (r"\q", b"\\q"), ("é|", "é|".encode())],
)
def test_unescape(text, data):
    assert unescape(text) == data


def test_envelope_is_kcats():
    line = envelope(TYPES)(Fake(None, "ü".encode(), (("h", b"1"), ("n", None))))
    assert line.endswith(b"\n")
    assert list(json.loads(line).items()) == [
        ("topic", "t"),
        ("partition", 2),
        ("offset", 7),
        ("tstype", "create"),
        ("ts", 1_700_000_000_000),
        ("headers", ["h", "1", "n", None]),
        ("key", None),
        ("payload", "ü"),
    ]


def test_envelope_bytes_that_are_no_text():
    document = json.loads(envelope({"t": "LogAppendTime"})(Fake(b"\xff", b"\n")))
    assert (document["key"], document["payload"], document["tstype"]) == ({"base64": "/w=="}, "\n", "logappend")
    assert "headers" not in document


def test_console_prints_values_on_lines():
    assert console({}, TYPES)(Fake()) == b"v\n"
    assert console({}, TYPES)(Fake(value=None)) == b"null\n"
    assert console({"line.separator": ";"}, TYPES)(Fake()) == b"v;"


def test_console_columns_in_kafkas_order():
    names = ("value", "key", "headers", "epoch", "offset", "partition", "timestamp")
    render = console({f"print.{name}": "true" for name in names}, TYPES)
    expected = b"CreateTime:1700000000000\tPartition:2\tOffset:7\tEpoch:3\tNO_HEADERS\tk\tv\n"
    assert render(Fake()) == expected
    assert b"\ta:1,b:null\t" in render(Fake(headers=(("a", b"1"), ("b", None))))


def test_console_properties():
    given = {"print.key": "true", "print.value": "false", "null.literal": "-", "key.separator": r"\x00"}
    assert console(given, TYPES)(Fake(None)) == b"-\n"
    assert console({**given, "print.value": "TRUE"}, TYPES)(Fake()) == b"k\0v\n"
    with pytest.raises(ValueError, match=r"property 'print\.keys': must be print\.timestamp"):
        console({"print.keys": "true"}, TYPES)
