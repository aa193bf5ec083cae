"""`ottla remote` on a bucket of a real S3 server that it finds by a node's configuration."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from broker.cli.main import run
from storage.tiered.format.object_keys import ObjectSuffix
from storage.tiered.stores.s3 import S3Store
from tests.broker.cli.tiering.harness import FOO_ID, RemoteCommandBroker, RemoteCommandHarness
from tests.support.processes.s3_server import S3Server, unavailable_reason

pytestmark = pytest.mark.integration

Remote = Callable[..., tuple[int, str]]
NOW = ("--grace-ms", "0")


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[RemoteCommandHarness]:
    if (reason := unavailable_reason()) is not None:
        pytest.skip(reason)
    broker = RemoteCommandBroker()
    with S3Server(tmp_path / "s3") as server, broker:
        store = S3Store(server.settings)
        named = {"remote.log.storage.manager.class.name": "s3", **server.node_settings()}
        yield RemoteCommandHarness(broker, tmp_path / "harness", (store, named))
        store.close()


@pytest.fixture
def remote(harness: RemoteCommandHarness, capsys: pytest.CaptureFixture[str]) -> Remote:
    def call(subcommand: str, *arguments: str) -> tuple[int, str]:
        code = run(["remote", subcommand, "--bootstrap-server", harness.broker.address, *harness.arguments, *arguments])
        return code, capsys.readouterr().out

    return call


def test_remote_command_verifies_cleans_and_recovers_a_bucket(harness: RemoteCommandHarness, remote: Remote) -> None:
    harness.topic("foo", FOO_ID, (0, 10, 29, 40))
    live = [harness.finished(harness.partition(), start, start + 9) for start in (0, 10, 20)]
    harness.copy(harness.partition(), 0, 9)
    abandoned = harness.copy(harness.partition(), 30, 39)
    harness.publish(abandoned)
    code, out = remote("verify", "--deep", *NOW)
    assert code == 1
    assert "3 live, 1 orphan, 1 abandoned copy" in out

    assert remote("collect", *NOW)[1].splitlines()[-1] == "2 segments and 0 other objects removed"
    assert harness.object_keys() == sorted(harness.keys.key(each, suffix) for each in live for suffix in ObjectSuffix)

    harness.broker.log.clear()
    harness.broker.ends.clear()
    assert remote("collect", *NOW)[1] == "0 segments and 0 other objects removed\n", "recovery lost segments"
    assert remote("recover", "--metadata-only")[0] == 0
    assert remote("verify", "--deep", *NOW) == (0, "1 partitions: 3 live\n")
    [row] = json.loads(remote("describe", "--from-bucket", "--json")[1])
    assert (row["remoteStartOffset"], row["remoteEndOffset"]) == (0, 29)
