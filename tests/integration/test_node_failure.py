"""A failing background task stops the whole node at once and names the reason."""

import asyncio
import logging
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from broker import app
from broker.config.load import load_config
from broker.runtime.loop.io_thread import IoThread
from broker.runtime.partitions.log_tasks import LogTasks
from storage.directories.log_dirs import LogDirs
from tests.support.kafka.apache_kafka import free_ports

pytestmark = pytest.mark.integration

LONGEST_S = 30.0


class PlantedFailure(Exception):
    """An exception that no component handles."""


class MessageEvent(logging.Handler):
    """A log handler that sets an event when a message contains the text."""

    def __init__(self, sentence: str, event: asyncio.Event) -> None:
        super().__init__()
        self._sentence = sentence
        self._event = event

    def emit(self, record: logging.LogRecord) -> None:
        if self._sentence in record.getMessage():
            self._event.set()


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Make every node fail as soon as it has started."""
    started = asyncio.Event()
    handler = MessageEvent("] started", started)

    async def fail(_tasks: LogTasks) -> None:
        await started.wait()
        raise PlantedFailure("a background task failed")

    monkeypatch.setattr(LogTasks, "run", fail)
    caplog.set_level("INFO")
    log = logging.getLogger("ottla")
    log.addHandler(handler)
    yield
    log.removeHandler(handler)


async def run_until_it_fails(directory: Path, ports: Sequence[int] = (0, 0)) -> pytest.ExceptionInfo[BaseException]:
    listeners = f"PLAINTEXT://127.0.0.1:{ports[0]},CONTROLLER://127.0.0.1:{ports[1]}"
    settings = [f"log.dirs={directory / 'data'}", f"listeners={listeners}", "ottla.http.listener="]
    config, _ = load_config(None, settings, {})
    with pytest.raises(BaseExceptionGroup) as failure:
        async with asyncio.timeout(LONGEST_S):
            await app.run(config)
    return failure


@pytest.mark.usefixtures("failing")
async def test_failed_task_stops_the_node_without_controlled_shutdown(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Check that the node does not wait for a controlled shutdown: heartbeats have ended with the failed task."""
    failure = await run_until_it_fails(tmp_path)
    assert failure.group_contains(PlantedFailure)
    assert "Background task failed; stopping the node" in caplog.text
    assert "PENDING_CONTROLLED_SHUTDOWN" not in caplog.text


@pytest.mark.usefixtures("failing")
async def test_directory_locks_are_released_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that ports are free and files closed before the locks go: a waiting node uses both at once."""
    ports = free_ports(2)
    unlock, stop_io, ended = LogDirs.unlock, IoThread.stop, []

    async def note_io(thread: IoThread) -> None:
        await stop_io(thread)
        ended.append("IO")

    def note_unlocking(dirs: LogDirs) -> None:
        for port in ports:
            socket.create_server(("127.0.0.1", port)).close()
        unlock(dirs)
        ended.append("locks")

    monkeypatch.setattr(IoThread, "stop", note_io)
    monkeypatch.setattr(LogDirs, "unlock", note_unlocking)
    await run_until_it_fails(tmp_path, ports)
    assert ended == ["IO", "IO", "IO", "locks"]  # the threads of the directories, the metadata log and its snapshots
