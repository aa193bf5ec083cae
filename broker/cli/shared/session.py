"""A connected client for the duration of a command. Errors become CommandFailed."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import javaproperties

from broker.cli.shared.advice import with_advice
from broker.cli.shared.failure import CommandFailed
from broker.client import Client, ClientConfig, ClientError, OpenSocket, open_socket
from protocol.errors import KafkaError


def read_properties(path: str | None) -> dict[str, str]:
    """Read properties from a file; {} without a path. Raises CommandFailed."""
    if path is None:
        return {}
    try:
        with open(path, encoding="utf-8") as file:
            return dict(javaproperties.load(file))
    except (OSError, UnicodeDecodeError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise CommandFailed(f"cannot read {path}: {reason}.") from error


@contextmanager
def session(
    bootstrap_server: str,
    command_config: str | None = None,
    overrides: Mapping[str, str] | None = None,
    opener: OpenSocket = open_socket,
) -> Iterator[Client]:
    """Open a client of the cluster. Errors of the client and the broker become CommandFailed."""
    with client_errors_as_failures():
        config = ClientConfig.parse(bootstrap_server, read_properties(command_config) | dict(overrides or {}))
        with Client(config, opener=opener) as client:
            yield client


@contextmanager
def client_errors_as_failures() -> Iterator[None]:
    """Turn errors of the client and the broker into CommandFailed."""
    try:
        yield
    except KafkaError as error:
        raise CommandFailed(with_advice(error.message, error)) from error
    except ClientError as error:
        raise CommandFailed(with_advice(str(error), error)) from error
