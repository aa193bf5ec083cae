"""Requests of the group coordinator to share coordinators, and what a missing response means."""

import pytest

from broker.coordination.share_partition_key import SharePartitionKey
from broker.groups.share.states import (
    Answered,
    DeletionRequest,
    EndOffsetRequest,
    InitializationRequest,
    StateRequest,
    SummaryRequest,
)
from broker.net.peer import PeerUnavailable
from protocol.errors import ErrorCode
from protocol.primitives import Uuid

KEYS = [SharePartitionKey("g", Uuid(bytes(16)), index) for index in range(2)]


@pytest.mark.parametrize(
    "request_",
    [
        InitializationRequest(dict.fromkeys(KEYS, 0), 1),
        DeletionRequest(),
        SummaryRequest(),
        EndOffsetRequest(lambda _: "t"),
    ],
)
def test_missing_response_is_a_network_exception_for_each_share_partition(request_: StateRequest[object]) -> None:
    assert request_.answers(KEYS, PeerUnavailable("no response in time")) == dict.fromkeys(
        KEYS, Answered(ErrorCode.NETWORK_EXCEPTION)
    )
