"""Errors of clients when the log of their coordinator fails."""

import pytest

from broker.coordination.errors import offset_fetch_error, response_error
from protocol.errors import ErrorCode


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ErrorCode.ILLEGAL_GENERATION, ErrorCode.ILLEGAL_GENERATION),
    ],
)
def test_log_error_is_mapped_to_a_coordinator_error(error: ErrorCode, expected: ErrorCode) -> None:
    assert response_error(error) is expected


def test_offset_fetch_gets_not_coordinator_instead_of_not_available() -> None:
    assert offset_fetch_error(ErrorCode.REQUEST_TIMED_OUT) is ErrorCode.NOT_COORDINATOR
    assert offset_fetch_error(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
