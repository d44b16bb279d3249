import pytest

from logdb.cli.terminal.output import counted, size_text, table, text_or_base64


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [(0, "0 B"), (999, "999 B"), (1_000, "1.0 kB"), (999_949, "999.9 kB"), (999_950, "1.0 MB"), (2**40, "1.1 TB"), (10**16, "10000.0 TB")],
)
def test_size_text(size_bytes, text):
    assert size_text(size_bytes) == text


def test_counted():
    assert (counted(1, "record"), counted(0, "batch"), counted(2_000, "record")) == ("1 record", "0 batches", "2,000 records")


def test_text_or_base64():
    assert (text_or_base64(None), text_or_base64("é".encode()), text_or_base64(b"\x80")) == (None, "é", {"base64": "gA=="})


def test_table_aligns_columns_for_programs(capsys):
    table(("NAME", "COUNT", "WHY"), [("a", 1_000, "x"), ("long name", 2, "")])
    assert capsys.readouterr().out == "NAME       COUNT  WHY\na           1000  x\nlong name      2\n"


def test_table_is_drawn_in_a_terminal(monkeypatch, capsys):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "dumb")
    table(("NAME", "COUNT"), [("[bold]a[/bold]", 1_000)])
    drawn = capsys.readouterr().out
    assert "[bold]a[/bold]" in drawn
    assert "1,000" in drawn
    assert "─" in drawn
