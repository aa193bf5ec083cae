"""A node of which a part fails: all of it ends, at once, and says why."""

import asyncio
import logging
from pathlib import Path

import pytest

from broker import app
from broker.config.load import load_config
from broker.runtime.log_tasks import LogTasks

pytestmark = pytest.mark.integration

LONGEST_S = 30.0


class Planted(Exception):
    """No part expects it."""


class Heard(logging.Handler):
    """Sets the event when a sentence is logged."""

    def __init__(self, sentence: str, event: asyncio.Event) -> None:
        super().__init__()
        self._sentence = sentence
        self._event = event

    def emit(self, record: logging.LogRecord) -> None:
        if self._sentence in record.getMessage():
            self._event.set()


async def test_a_task_that_fails_ends_the_node_without_leave_of_anybody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The heartbeats end with the task, so that no controller would ever let go of the broker."""
    at_work = asyncio.Event()
    heard = Heard("] started", at_work)

    async def fail(_tasks: LogTasks) -> None:
        await at_work.wait()
        raise Planted("a part failed")

    monkeypatch.setattr(LogTasks, "run", fail)
    caplog.set_level("INFO")
    log = logging.getLogger("ottla")
    log.addHandler(heard)
    listeners = "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0"
    settings = [f"log.dirs={tmp_path / 'data'}", f"listeners={listeners}", "ottla.http.listener="]
    config, _ = load_config(None, settings, {})
    try:
        with pytest.raises(BaseExceptionGroup) as failure:
            async with asyncio.timeout(LONGEST_S):
                await app.run(config)
    finally:
        log.removeHandler(heard)
    assert failure.group_contains(Planted)
    assert "a task in the background failed, and the node with it" in caplog.text
    assert "PENDING_CONTROLLED_SHUTDOWN" not in caplog.text
