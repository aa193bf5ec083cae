"""`ottla remote` on a bucket of a real S3 server, found by the settings of a node: read, cleaned, recovered from."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from broker.cli.main import run
from storage.tiered.format.object_keys import ObjectSuffix
from storage.tiered.stores.s3 import S3Store
from tests.broker.cli.tiering.stage import FOO_ID, Stage, StageBroker
from tests.support.processes.s3_server import S3Server, unavailable_reason

pytestmark = pytest.mark.integration

Remote = Callable[..., tuple[int, str]]
NOW = ("--grace-ms", "0")


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    if (reason := unavailable_reason()) is not None:
        pytest.skip(reason)
    broker = StageBroker()
    with S3Server(tmp_path / "s3") as server, broker:
        store = S3Store(server.settings)
        named = {"remote.log.storage.manager.class.name": "s3", **server.node_settings()}
        yield Stage(broker, tmp_path / "stage", (store, named))
        store.close()


@pytest.fixture
def remote(stage: Stage, capsys: pytest.CaptureFixture[str]) -> Remote:
    def call(subcommand: str, *arguments: str) -> tuple[int, str]:
        code = run(["remote", subcommand, "--bootstrap-server", stage.broker.address, *stage.arguments, *arguments])
        return code, capsys.readouterr().out

    return call


def test_a_bucket_is_verified_cleaned_and_recovered_from(stage: Stage, remote: Remote) -> None:
    stage.topic("foo", FOO_ID, (0, 10, 29, 40))
    live = [stage.finished(stage.partition(), start, start + 9) for start in (0, 10, 20)]
    stage.copy(stage.partition(), 0, 9)
    abandoned = stage.copy(stage.partition(), 30, 39)
    stage.say(abandoned)
    code, out = remote("verify", "--deep", *NOW)
    assert code == 1
    assert "3 live, 1 orphan, 1 abandoned copy" in out

    assert remote("collect", *NOW)[1].splitlines()[-1] == "2 segments and 0 other objects removed"
    assert stage.object_keys() == sorted(stage.keys.key(each, suffix) for each in live for suffix in ObjectSuffix)

    stage.broker.log.clear()
    stage.broker.ends.clear()
    assert remote("collect", *NOW)[1] == "0 segments and 0 other objects removed\n", "lost metadata cost no data"
    assert remote("recover", "--metadata-only")[0] == 0
    assert remote("verify", "--deep", *NOW) == (0, "1 partitions: 3 live\n")
    [row] = json.loads(remote("describe", "--from-bucket", "--json")[1])
    assert (row["remoteStartOffset"], row["remoteEndOffset"]) == (0, 29)
