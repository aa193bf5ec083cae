"""The exception for failures of a command."""

import click


class CommandFailed(click.ClickException):
    """Failure of a command. The program prints the message on stderr and exits with code 1."""

    exit_code = 1
