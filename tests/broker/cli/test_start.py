"""The commands start and cluster, with a fake node."""

import asyncio
import logging
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

from broker.cli.main import run
from broker.config.broker_config import BrokerConfig
from broker.config.errors import ConfigError
from broker.net.listening import ListenError
from storage.errors import LogDirFailure

Run = Callable[[BrokerConfig], Awaitable[None]]
Install = Callable[[Run], None]


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    """Restore the process's logging, which `start` reconfigures."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.captureWarnings(False)


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> Install:
    """Return a function that replaces `broker.app.run` by a coroutine."""
    monkeypatch.delenv("CLUSTER_ID", raising=False)

    def install(run_node: Run) -> None:
        stand_in = ModuleType("broker.app")
        stand_in.__dict__["run"] = run_node
        monkeypatch.setitem(sys.modules, "broker.app", stand_in)

    return install


def _failing(error: BaseException) -> Run:
    async def run_node(config: BrokerConfig) -> None:
        raise error

    return run_node


def test_node_receives_the_configuration(node: Install, tmp_path: Path) -> None:
    seen: list[tuple[int, str]] = []

    async def run_node(config: BrokerConfig) -> None:
        seen.append((config.num_partitions, asyncio.get_running_loop().__class__.__module__))

    node(run_node)
    (tmp_path / "c").write_text(
        "process.roles=broker,controller\nnode.id=1\ncontroller.listener.names=CONTROLLER\n"
        "listeners=PLAINTEXT://:0,CONTROLLER://127.0.0.1:0\ncontroller.quorum.voters=1@127.0.0.1:1\nnum.partitions=3\n"
    )
    assert run(["start", str(tmp_path / "c")]) == 0
    assert run(["start", str(tmp_path / "c"), "--override", "num.partitions=4"]) == 0
    assert seen == [(3, "uvloop"), (4, "uvloop")]


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_warnings_are_logged(log_format: str, node: Install, capsys: pytest.CaptureFixture[str]) -> None:
    async def run_node(config: BrokerConfig) -> None:
        return

    node(run_node)
    assert run(["start", "--override", "num.partitons=3", "--log-format", log_format]) == 0
    out = capsys.readouterr().out
    assert "Did you mean num.partitions?" in out
    assert out.startswith("{") is (log_format == "json")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["/nosuch"], "The configuration file /nosuch cannot be read: No such file or directory."),
        (["--override", "listeners=foo"], "listeners has the entry 'foo'"),
        (["--override", "x"], "must be of the form KEY=VALUE"),
    ],
)
def test_invalid_configuration_is_reported(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["start", *arguments]) == 1
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (OSError(98, "Address already in use"), "Error: Address already in use.\n"),
        (OSError(13, "Permission denied", "/data"), "Error: /data: Permission denied.\n"),
        (ConfigError("k", "k is wrong."), "Error: k is wrong.\n"),
        (ListenError("the port is in use"), "Error: the port is in use.\n"),
        (ExceptionGroup("tasks", [ExceptionGroup("inner", [ConfigError("k", "k is wrong.")])]), "Error: k is wrong.\n"),
    ],
)
def test_failed_start_reports_its_reason(
    error: Exception, message: str, node: Install, capsys: pytest.CaptureFixture[str]
) -> None:
    node(_failing(error))
    assert run(["start"]) == 1
    assert capsys.readouterr().err == message


def test_storage_error_is_reported(node: Install, capsys: pytest.CaptureFixture[str]) -> None:
    node(_failing(LogDirFailure("/data", OSError(28, "No space left on device"))))
    assert run(["start"]) == 1
    assert capsys.readouterr().err.count("\n") == 1


def test_bug_is_logged_with_its_traceback(node: Install, capsys: pytest.CaptureFixture[str]) -> None:
    node(_failing(ZeroDivisionError("a bug")))
    assert run(["start"]) == 1
    captured = capsys.readouterr()
    assert captured.err == "Error: The node failed: ZeroDivisionError: a bug\n"
    assert "test_start.py" in captured.out
    assert "Traceback" not in captured.out


def test_interrupt_exits_with_0(node: Install) -> None:
    node(_failing(KeyboardInterrupt()))
    assert run(["start"]) == 0


def test_nodes_with_the_same_id_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["cluster", "--dir", str(tmp_path / "d"), "--override", "node.id=7", "--override", "broker.id=7"]) == 1
    assert "the nodes of a cluster need different ids" in capsys.readouterr().err
    assert not (tmp_path / "d").exists()


def test_cluster_with_an_invalid_setting_starts_no_node(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["cluster", "--dir", str(tmp_path / "d"), "--override", "num.partitions=x"]) == 1
    assert "num.partitions" in capsys.readouterr().err
    assert not (tmp_path / "d").exists()


def test_passwords_come_from_a_file_and_overrides_with_them_warn(
    node: Install, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seen: list[object] = []

    async def run_node(config: BrokerConfig) -> None:
        seen.extend([config.layers.find("ssl.key.password"), config.layers.find("ssl.keystore.password")])

    node(run_node)
    (tmp_path / "s").write_text("ssl.key.password=from-file\n")
    command = ["start", "--overrides-file", str(tmp_path / "s"), "--override", "ssl.keystore.password=from-title"]
    assert run(command) == 0
    assert seen == ["from-file", "from-title"]
    output = capsys.readouterr().out
    assert "--override ssl.keystore.password shows a password" in output
    assert "from-" not in output
