"""Events of the verifiable clients, in the fields of Kafka's tools, and interruption by SIGTERM."""

import json
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import click


def emit(name: str, **fields: object) -> None:
    """Print an event with the present time as one line of JSON; `fields` follow in their order."""
    event = {"timestamp": time.time_ns() // 1_000_000, "name": name} | fields
    click.echo(json.dumps(event, separators=(",", ":"), ensure_ascii=False))


def text(value: bytes | None) -> str | None:
    """Return a key or value as text; invalid UTF-8 is replaced."""
    return None if value is None else value.decode(errors="replace")


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """End the body at SIGTERM or SIGINT without an error, so that a client can close and report."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    except KeyboardInterrupt:
        return
    finally:
        signal.signal(signal.SIGTERM, previous)
