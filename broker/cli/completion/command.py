"""`ottla completion`: the completion script of a shell."""

from typing import Final

import click
from click.shell_completion import get_completion_class

PROGRAM: Final = "ottla"
COMPLETE_VARIABLE: Final = "_OTTLA_COMPLETE"
"""Environment variable by which a shell asks for completions; click derives the name from the program's."""

SHELLS: Final = ("bash", "zsh", "fish")


@click.command("completion", short_help="Print the completion script of a shell.")
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the script that completes commands, options, and the names of topics and groups.

    \b
    bash: echo 'eval "$(ottla completion bash)"' >> ~/.bashrc
    zsh:  echo 'eval "$(ottla completion zsh)"' >> ~/.zshrc
    fish: ottla completion fish > ~/.config/fish/completions/ottla.fish

    Names of topics and groups are those of the cluster at --bootstrap-server, if the option precedes them.
    """
    script = get_completion_class(shell)
    assert script is not None
    click.echo(script(context.find_root().command, {}, PROGRAM, COMPLETE_VARIABLE).source())
