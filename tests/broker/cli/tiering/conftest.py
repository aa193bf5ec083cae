"""Fixtures that run `ottla remote` in this process, against a fake broker and a directory as the bucket."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from broker.cli.main import run
from tests.broker.cli.conftest import Outcome
from tests.broker.cli.tiering.harness import RemoteCommandBroker, RemoteCommandHarness

Remote = Callable[..., Outcome]


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[RemoteCommandHarness]:
    broker = RemoteCommandBroker()
    with broker:
        yield RemoteCommandHarness(broker, tmp_path / "bucket")


@pytest.fixture
def remote(harness: RemoteCommandHarness, capsys: pytest.CaptureFixture[str]) -> Remote:
    """Return a function that runs `ottla remote SUBCOMMAND …` against the harness."""

    def call(subcommand: str, *arguments: str) -> Outcome:
        code = run(["remote", subcommand, "--bootstrap-server", harness.broker.address, *harness.arguments, *arguments])
        captured = capsys.readouterr()
        return Outcome(code, captured.out, captured.err)

    return call
