"""Fixtures that run commands in this process against a fake broker."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest

from broker.cli.main import run
from tests.support.fakes.fake_broker import FakeBroker


class Outcome(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


Ottla = Callable[..., Outcome]


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker() as fake:
        yield fake


@pytest.fixture
def ottla(broker: FakeBroker, capsys: pytest.CaptureFixture[str]) -> Ottla:
    """Return a function that runs `ottla COMMAND …` against the broker."""

    def call(command: str, *arguments: str) -> Outcome:
        code = run([command, "--bootstrap-server", broker.address, *arguments])
        captured = capsys.readouterr()
        return Outcome(code, captured.out, captured.err)

    return call
