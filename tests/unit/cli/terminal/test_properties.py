"""properties.py: what ``java.util.Properties`` reads, we read."""

import click
import pytest

from logdb.cli.terminal import properties


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=b", {"a": "b"}),
        ("a:b\nc d\ne\tf\ng\fh", {"a": "b", "c": "d", "e": "f", "g": "h"}),
        (" a = b\nc : d\ne   f\n  g\t=\t h", {"a": "b", "c": "d", "e": "f", "g": "h"}),
        ("a==b\nc=:d\ne : =f\ng h=i", {"a": "=b", "c": ":d", "e": "=f", "g": "h=i"}),
        ("a\nb=\n=c", {"a": "", "b": "", "": "c"}),
        ("a=b \t", {"a": "b \t"}),
        ("# a=b\n  ! c=d\n\n \t\f\ne=f#g!h", {"e": "f#g!h"}),
        ("a=b\rc=d\r\ne=f", {"a": "b", "c": "d", "e": "f"}),
        ("a=b\x0bc\x85d\u2028e", {"a": "b\x0bc\x85d\u2028e"}),
        ("a=b,\\\n   c,\\\r\n\td", {"a": "b,c,d"}),
        ("a=b\\\n# c\n# d\\\ne=f", {"a": "b# c", "e": "f"}),
        ("a=b\\\n\nc=d", {"a": "b", "c": "d"}),
        ("a=b\\\\\nc=d\\", {"a": "b\\", "c": "d"}),
        ("\\\n# a\nb=c", {"b": "c"}),
        (r"a=\t\n\r\f\u00e9\q\"\\" + "\n" + r"b\ c\:\=\#=d\ ", {"a": '\t\n\r\fé\x71"\\', "b c:=#": "d "}),
        (r"a=\ud83d\ude00", {"a": "\U0001f600"}),
        ("a=b\na=c", {"a": "c"}),
        ("", {}),
    ],
)  # fmt: skip
def test_what_java_reads(text, expected):
    assert properties.parse(text) == expected


@pytest.mark.parametrize("text", [r"a=\u12", r"a=\u12x4", "a=\\u", r"a=\ud83d"])
def test_an_escape_that_is_none(text, tmp_path):
    (tmp_path / "f.properties").write_text(text)
    with pytest.raises(click.UsageError, match=r"f\.properties: "):
        properties.read(str(tmp_path / "f.properties"))
