"""CreateMetadataSnapshot, key 10000 (`broker.api.quorum.create_metadata_snapshot`), which Kafka does not have."""

import asyncio

import pytest

from broker.api.cluster.api_versions import ApiVersionsHandler
from broker.api.quorum.create_metadata_snapshot import CreateMetadataSnapshotHandler
from broker.metadata.image.metadata_image import EMPTY_IMAGE
from broker.quorum.identity import SnapshotId
from broker.runtime.quorum.snapshot_generator import SnapshotImpossible
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.api_versions import ApiVersionsRequest
from protocol.messages.create_metadata_snapshot import CreateMetadataSnapshotRequest, CreateMetadataSnapshotResponse
from tests.broker.api.metadata_harness import FixedMetadata, context, unrestricted_route
from tests.support.fakes.fast_forward_loop import run_fast
from tests.support.quorum_values import make_snapshot_id


class Cutter:
    """Succeeds, fails or never ends, as configured."""

    def __init__(self, outcome: SnapshotId | Exception, *, takes_s: float = 0.0) -> None:
        self._outcome = outcome
        self._takes_s = takes_s

    async def generate_now(self) -> SnapshotId:
        await asyncio.sleep(self._takes_s)
        if isinstance(self._outcome, Exception):
            raise self._outcome
        return self._outcome


def ask(cutter: Cutter, timeout_ms: int = 1000) -> CreateMetadataSnapshotResponse:
    handler = CreateMetadataSnapshotHandler(cutter)
    answers: list[CreateMetadataSnapshotResponse] = []

    async def main() -> None:
        answers.append(await handler(CreateMetadataSnapshotRequest(timeout_ms), context(0)))

    run_fast(main())
    return answers[0]


def test_response_names_the_snapshot() -> None:
    answer = ask(Cutter(make_snapshot_id(42, 7)))
    assert (answer.error_code, answer.end_offset, answer.epoch) == (0, 42, 7)


@pytest.mark.parametrize(
    ("cutter", "code"),
    [
        (Cutter(SnapshotImpossible("nothing is committed")), ErrorCode.SNAPSHOT_NOT_FOUND),
        (Cutter(OSError(28, "No space left on device")), ErrorCode.KAFKA_STORAGE_ERROR),
        (Cutter(make_snapshot_id(1, 1), takes_s=2), ErrorCode.REQUEST_TIMED_OUT),
    ],
)
def test_failures_have_their_error_codes(cutter: Cutter, code: ErrorCode) -> None:
    with pytest.raises(BaseException) as failed:
        ask(cutter)
    error = failed.value.exceptions[0] if isinstance(failed.value, BaseExceptionGroup) else failed.value
    assert isinstance(error, KafkaError)
    assert error.code is code


def test_api_versions_leaves_the_api_out() -> None:
    rows = [
        unrestricted_route(
            ApiKey.CREATE_METADATA_SNAPSHOT, CreateMetadataSnapshotHandler(Cutter(make_snapshot_id(1, 1)))
        )
    ]
    handler = ApiVersionsHandler(lambda: rows, FixedMetadata(EMPTY_IMAGE), kraft_version=lambda: 1)
    answer = handler(ApiVersionsRequest("test", "1"), context(4))
    assert answer.api_keys == []
