"""``logdb configs``: the configs of topics.

Verbs, and the flags of kafka-configs, which also print as it does; those of what is no topic are in ``configs_as_kafka``.
"""

import re
from collections.abc import Sequence

import click

from logdb.cli.kafka import configs_as_kafka
from logdb.cli.terminal import properties
from logdb.cli.terminal.actions import ActionFlags, names
from logdb.cli.terminal.output import emit, line, say, table
from logdb.cli.terminal.params import CONFIG, CONFIG_KEY, TOPIC, Pairs
from logdb.cli.terminal.session import Session, common, pass_session
from logdb.cli.topics.enforce_retention import EXECUTE, may_alter
from logdb.cli.topics.topics import changes, config_text
from logdb.model import TOPIC_CONFIGS, TopicInfo, in_kafkas_words

_FLAGS = ActionFlags("kafka-configs", "describe", "alter", describing=("names", "entity_types", "topics", "every"))


def entries(topic: TopicInfo, *, every: bool) -> list[dict[str, object]]:
    """A topic's configs as JSON: those that were set, or all with their defaults."""
    names = TOPIC_CONFIGS if every else sorted(topic.config)
    return [
        {
            "key": name,
            "value": topic.config.get(name, TOPIC_CONFIGS[name].default),
            "default": TOPIC_CONFIGS[name].default,
            "set": name in topic.config,
        }
        for name in names
    ]


def parse_added(text: str) -> list[tuple[str, str]]:
    """Pairs of kafka-configs' ``--add-config``: ``k=v,k=[v1,v2]``.

    Raises:
        click.BadParameter: A part is not KEY=VALUE.
    """
    parts = re.findall(r"(?:[^,\[]|\[[^\]]*\])+", text)
    pairs = []
    for part in parts:
        key, equals, value = part.partition("=")
        if not equals:
            raise click.BadParameter(f"{part!r} is not KEY=VALUE", param_hint="--add-config")
        pairs.append((key.strip(), value.strip().removeprefix("[").removesuffix("]")))
    return pairs


def print_as_kafka(topic: TopicInfo, *, every: bool) -> None:
    line(f"{'All' if every else 'Dynamic'} configs for topic {topic.name} are:")
    for entry in entries(topic, every=every):
        name = str(entry["key"])
        value, default = (config_text({name: in_kafkas_words(name, one)}) for one in (entry["value"], entry["default"]))
        synonyms = [f"DYNAMIC_TOPIC_CONFIG:{value}"] if entry["set"] else []
        line(f"  {value} sensitive=false synonyms={{{', '.join([*synonyms, f'DEFAULT_CONFIG:{default}'])}}}")


def alter_topics(session: Session, names: Sequence[str], pairs: Pairs, dropped: Sequence[str], *, execute: bool) -> None:
    if not pairs and not dropped:
        raise click.UsageError("nothing to alter: --set KEY=VALUE sets a config, --delete KEY restores its default")
    config = changes(pairs, [key for key in dropped if key in TOPIC_CONFIGS or not session.kafka])
    with session.write() as db:
        if not may_alter(session, db, names, config, execute=execute):
            return
        for name in names:
            db.alter_topic(name, config=config)
            if session.kafka:
                line(f"Completed updating config for topic {name}.")
            elif session.as_json:
                emit({"topic": name, "config": dict(db.describe_topic(name).config)})
            else:
                say(f"altered topic {name}: {config_text(db.describe_topic(name).config)}")


@click.group(
    short_help="List, show and change configs of topics.",
    invoke_without_command=True,
    epilog="The flags of kafka-configs work too: --describe [--all] or --alter with --entity-type topics --entity-name TOPIC "
    "(or --topic TOPIC), --add-config, --delete-config.",
)
@common
@_FLAGS.options
@click.option("--all", "every", is_flag=True, hidden=True)
@click.option("--entity-type", "entity_types", type=click.Choice(configs_as_kafka.TYPES), multiple=True, hidden=True)
@click.option("--entity-name", "names", multiple=True, hidden=True)
@click.option("--entity-default", is_flag=True, hidden=True)
@click.option("--topic", "topics", hidden=True)
@click.option("--entity-user", "users", hidden=True)
@click.option("--user-defaults", "users", flag_value="", hidden=True)
@click.option("--client", "clients", hidden=True)
@click.option("--client-defaults", "clients", flag_value="", hidden=True)
@click.option("--broker", "brokers", hidden=True)
@click.option("--broker-defaults", "brokers", flag_value="", hidden=True)
@click.option("--ip", "ips", hidden=True)
@click.option("--ip-defaults", "ips", flag_value="", hidden=True)
@click.option("--add-config", hidden=True)
@click.option("--add-config-file", "file", type=click.Path(exists=True, dir_okay=False), hidden=True)
@click.option("--delete-config", hidden=True)
@click.option("--yes", "--execute", "execute", is_flag=True, hidden=True)
@pass_session
@click.pass_context
def configs(
    context: click.Context,
    session: Session,
    /,
    every: bool,
    entity_types: Sequence[str],
    names: Sequence[str],
    entity_default: bool,
    add_config: str | None,
    file: str | None,
    delete_config: str | None,
    execute: bool,
    **flags: str | None,
) -> None:
    """Show and change configs of topics; list all keys."""
    action = _FLAGS.given(context, required=session.kafka)
    if context.invoked_subcommand is not None:
        return
    kinds = entity_types or (["topics"] if names else [])
    entity = configs_as_kafka.entity_of(kinds, names, flags, default=entity_default) or configs_as_kafka.Entity("topics", None)
    if action == "alter":
        added = [*(properties.trimmed(properties.read(file)).items() if file else ()), *parse_added(add_config or "")]
        dropped = [key.strip() for key in delete_config.split(",")] if delete_config else []
        if entity.kind != "topics":
            configs_as_kafka.alter(session, entity, dict(added), dropped)
        elif not entity.name:
            raise click.UsageError("--alter needs --entity-name TOPIC")
        else:
            alter_topics(session, [entity.name], added, dropped, execute=execute)
    elif action == "describe" and entity.kind != "topics":
        configs_as_kafka.describe(session, entity, every=every)
    elif action == "describe":
        describe_topics(session, entity.name, every=every)
    else:
        context.invoke(list_keys)


def describe_topics(session: Session, name: str | None, *, every: bool) -> None:
    with session.read() as db:
        known = [topic.name for topic in db.topics(internal=session.kafka)]
        if session.kafka and not every and name and name not in known:
            line(f"The topic '{name}' doesn't exist and doesn't have dynamic config.")
            return
        found = [db.describe_topic(topic) for topic in ([name] if name else known)]
    if session.as_json:
        emit({topic.name: entries(topic, every=every) for topic in found})
        return
    for topic in found:
        print_as_kafka(topic, every=every)


@configs.command("list")
@common
@pass_session
def list_keys(session: Session) -> None:
    """List every config key of topics: default, allowed values, meaning."""
    if session.as_json:
        emit([{"key": name, "default": key.default, "allowed": key.allowed, "meaning": key.meaning} for name, key in TOPIC_CONFIGS.items()])
        return
    rows = [(name, config_text({"": key.default})[1:] or '""', key.allowed, key.meaning) for name, key in TOPIC_CONFIGS.items()]
    table(("KEY", "DEFAULT", "ALLOWED", "MEANING"), rows)


@configs.command()
@common
@names("[TOPIC]...", "--entity-name", "--topic", kind=TOPIC)
@click.option("-a", "--all", "every", is_flag=True, help="Also configs that are not set, with their defaults.")
@pass_session
def describe(session: Session, names: Sequence[str], every: bool) -> None:
    """Show the configs of topics; without names, of all topics."""
    with session.read() as db:
        found = [db.describe_topic(name) for name in names or [topic.name for topic in db.topics()]]
    if session.as_json:
        emit({topic.name: entries(topic, every=every) for topic in found})
        return
    rows = [
        (topic.name, entry["key"], config_text({"": entry["value"]})[1:], "set" if entry["set"] else "default")
        for topic in found
        for entry in entries(topic, every=every)
    ]
    if rows:
        table(("TOPIC", "KEY", "VALUE", "SOURCE"), rows)
    else:
        say("nothing was set: all defaults (--all shows them)")


configs.add_command(describe, "get")


@configs.command(short_help="Change configs; shows first what that deletes.")
@common
@names("TOPIC...", "--entity-name", "--topic", kind=TOPIC)
@click.option("-s", "--set", "pairs", type=CONFIG, multiple=True, help="Set a config: -s retention.ms=1d.")
@click.option("-d", "--delete", "dropped", type=CONFIG_KEY, multiple=True, help="Restore the default of a config.")
@EXECUTE
@pass_session
def alter(session: Session, names: Sequence[str], pairs: Pairs, dropped: Sequence[str], execute: bool) -> None:
    """Change the configs of topics; shows the records that new limits delete, and deletes them with --execute."""
    alter_topics(session, names, pairs, dropped, execute=execute)


@configs.command("set", short_help="Set configs of one topic, as alter --set.")
@common
@click.argument("topic", type=TOPIC)
@click.argument("pairs", metavar="KEY=VALUE...", type=CONFIG, nargs=-1, required=True)
@EXECUTE
@pass_session
def set_(session: Session, topic: str, pairs: Pairs, execute: bool) -> None:
    """Set configs of a topic: logdb configs set TOPIC retention.ms=7d; short for alter --set."""
    alter_topics(session, [topic], pairs, (), execute=execute)
