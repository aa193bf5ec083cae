"""The one exception by which a command says to a person what went wrong."""

import click


class CommandFailed(click.ClickException):
    """One plain sentence; the program prints it on stderr and exits with 1."""

    exit_code = 1
