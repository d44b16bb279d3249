"""The tables of docs/reference that are made of the code: the options of ``logdb serve``, the commands,
and the properties of Connect's converters and transforms.

``python tests/support/reference_tables.py`` writes them anew, between the marks ``<!-- NAME -->`` and ``<!-- end -->``.  A test sees
that this would change nothing.
"""

import importlib
import inspect
import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import click

from logdb.cli.app import SECTIONS, cli
from logdb.cli.serving.settings import _TOPIC_PROPERTIES, SETTINGS
from logdb_connect.catalogue import PLUGINS
from logdb_connect.config import definition

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"
_PART = re.compile(r"(<!-- ([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)
_DEFAULT = re.compile(r"\s*\[default([^\]]*?): ([^\]]+)\]")


def written(page: str) -> str:
    """The page with its tables made anew."""
    return _PART.sub(lambda part: f"{part[1]}{TABLES[part[2]]()}\n{part[3]}", page)


def table(heads: str, rows: Iterator[tuple[str, ...]]) -> str:
    lines = [tuple(heads.split(" | ")), *rows]
    assert not any("|" in cell for line in lines for cell in line)  # GitHub and the site disagree on how one is escaped
    shown = [f"| {' | '.join(line)} |" for line in lines]
    return "\n".join([shown[0], "|---" * len(lines[0]) + "|", *shown[1:]])


# ---------------------------------------------------------------- logdb serve


def options() -> str:
    def rows() -> Iterator[tuple[str, ...]]:
        for name, setting in SETTINGS.items():
            default = _DEFAULT.search(setting.meaning)
            said = "off" if setting.kind is bool else "" if default is None else f"{default[2]}{default[1]}"
            meaning = _DEFAULT.sub("", setting.meaning)
            yield f"`{name}`", said, meaning, f"`{setting.property_name}`" if setting.property_name else ""

    return table("option | default | meaning | key in `server.properties`", rows())


def topic_properties() -> str:
    units = {60_000: ", in minutes", 3_600_000: ", in hours"}
    rows = ((f"`{key}`{units.get(factor, '')}", f"`{name}`") for key, (name, factor) in _TOPIC_PROPERTIES.items())
    return table("key in `server.properties` | config of new topics", rows)


# ---------------------------------------------------------------- the commands

_ELSEWHERE = {option.name for option in cli.params} | SETTINGS.keys()
"""Options of every command, and those of ``serve`` that server-options.md has."""


def _flags_of(command: click.Command) -> Iterator[tuple[str, str]]:
    """Flags and meaning of the options that are a command's own."""
    for option in command.params:
        if isinstance(option, click.Option) and not option.hidden and option.name not in _ELSEWHERE:
            yield _flag(option)


def _flag(option: click.Option) -> tuple[str, str]:
    context = click.Context(click.Command("logdb"))
    record = option.get_help_record(context)
    assert record is not None
    flags, meaning = record
    return f"`{' '.join(flags.split()).replace('|', ', ')}`", " ".join(meaning.split()).translate({ord("["): "(", ord("]"): ")"})


def _names(command: click.Command, name: str) -> Iterator[tuple[str, click.Command]]:
    """A verb with its subcommands, in the order of its help."""
    yield name, command
    if isinstance(command, click.Group):
        for sub in command.list_commands(click.Context(command)):
            found = command.get_command(click.Context(command), sub)
            if found is not None and not found.hidden:
                yield from _names(found, f"{name} {sub}")


def _text(command: click.Command) -> str:
    """The help of a command, as paragraphs of Markdown."""
    text = (command.help or "").split("\f")[0].replace("\b\n", "").replace("<", r"\<").replace("*", r"\*").replace("[", r"\[")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))


def _usage(command: click.Command, name: str) -> str:
    context = click.Context(command, info_name=f"logdb {name}")
    return " ".join(command.get_usage(context).removeprefix("Usage: ").split())


def commands() -> str:
    parts = []
    context = click.Context(cli)
    for title, verbs in SECTIONS.items():
        parts.append(f"## {title}")
        for verb in verbs:
            command = cli.get_command(context, verb)
            assert command is not None
            for name, one in _names(command, verb):
                depth = "###" + "#" * name.count(" ")
                parts += [f"{depth} {name}", f"    {_usage(one, name)}", _text(one)]
                if (flags := list(_flags_of(one))) and not isinstance(one, click.Group):
                    parts.append(table("option | meaning", iter(flags)))
    return "\n\n".join(part for part in parts if part) + "\n"


def common_flags() -> str:
    options = [option for option in cli.params if isinstance(option, click.Option) and not option.hidden]
    return table("option | meaning", (_flag(option) for option in options))


# ---------------------------------------------------------------- Connect


def _plugins(*kinds: str) -> dict[str, tuple[list[str], Any]]:
    """Names and class of each converter, transform or predicate, by its short name."""
    found: dict[str, tuple[list[str], Any]] = {}
    for plugin in PLUGINS:
        module, _, attribute = plugin.target.partition(":")
        if plugin.kind in kinds and module.startswith(("logdb_connect.converters.", "logdb_connect.transforms.")):
            short = re.split(r"\$", plugin.name.rpartition(".")[2])[0]
            names, _ = found.setdefault(short, ([], getattr(importlib.import_module(module), attribute)))
            names += [plugin.name] if plugin.name not in names else []
    return found


def _properties(short: str, names: list[str], made: Any) -> Iterator[str]:
    """A heading, the names, what the class is for, and a table of its properties."""
    base = next((one for one in made.__mro__ if one.__name__ == short), made)
    yield f"### {short}"
    yield f"{' · '.join(f'`{name}`' for name in names)}\n\n{inspect.cleandoc(base.__doc__).replace('``', '`')}"
    if rows := [
        (
            f"`{key.name}`",
            "required" if (shown := definition(key))["required"] else f"`{shown['default_value']}`" if shown["default_value"] else "",
            key.documentation,
        )
        for key in made.config_def
    ]:
        yield table("property | default | meaning", iter(rows))


def connect(*kinds: str) -> str:
    return "\n\n".join(part for short, (names, made) in _plugins(*kinds).items() for part in _properties(short, names, made)) + "\n"


PAGES = ("commands.md", "connect-transforms.md", "server-options.md")
TABLES: dict[str, Callable[[], str]] = {
    "options": options,
    "topic-properties": topic_properties,
    "commands": commands,
    "common-flags": common_flags,
    "connect-converters": partial(connect, "converter", "header_converter"),
    "connect-transforms": partial(connect, "transformation"),
    "connect-predicates": partial(connect, "predicate"),
}

if __name__ == "__main__":
    for page in PAGES:
        path = REFERENCE / page
        path.write_text(written(path.read_text(encoding="utf-8")), encoding="utf-8")
