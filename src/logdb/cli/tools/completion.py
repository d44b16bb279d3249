"""``logdb completion``: the script that teaches a shell to complete verbs, options, topics and config keys."""

import click
from click.shell_completion import get_completion_class

from logdb.cli.terminal.output import write_data
from logdb.cli.terminal.session import here

INSTALL = """\b
Put this into the shell's start file:
  bash  (~/.bashrc)                   eval "$(logdb completion bash)"
  zsh   (~/.zshrc)                    eval "$(logdb completion zsh)"
  fish  (~/.config/fish/config.fish)  logdb completion fish | source"""


@click.command(short_help="Print the completion script of a shell.", epilog=INSTALL)
@here
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the completion script of a shell."""
    found = get_completion_class(shell)
    assert found is not None
    write_data(found(context.find_root().command, {}, "logdb", "_LOGDB_COMPLETE").source().encode() + b"\n")
