"""The brokers that partition leaders ask about transactions: requests are recorded, and the test answers them."""

from collections.abc import Callable
from typing import NamedTuple

from broker.metadata.image.metadata_image import MetadataImage
from broker.net.peer import Done, Outcome, PeerUnavailable, SocketAddress
from broker.runtime.coordinators.transaction_verifier import TransactionVerifier, VerifierSettings
from broker.runtime.loop.runtime import Runtime
from protocol.errors import ErrorCode
from protocol.messages import Message
from protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)


class Asked(NamedTuple):
    """A request to one coordinator."""

    endpoint: SocketAddress
    request: AddPartitionsToTxnRequest
    done: Done


class FakeCoordinators:
    """Implements `Peers`."""

    def __init__(self) -> None:
        self.asked: list[Asked] = []

    def send(
        self,
        endpoint: SocketAddress,
        request: Message,
        done: Done,
        *,
        timeout_ms: float,
        versions: tuple[int, int] | None = None,
    ) -> None:
        assert isinstance(request, AddPartitionsToTxnRequest)
        self.asked.append(Asked(endpoint, request, done))

    def answer(self, outcome: Outcome) -> AddPartitionsToTxnRequest:
        """Answer the oldest request, which is returned."""
        asked = self.asked.pop(0)
        asked.done(outcome)
        return asked.request

    def confirm(self, code: ErrorCode = ErrorCode.NONE) -> AddPartitionsToTxnRequest:
        """Answer the oldest request with one code for all partitions."""
        return self.answer(all_partitions(self.asked[0].request, code))

    def disconnect(self) -> AddPartitionsToTxnRequest:
        """Fail the oldest request."""
        return self.answer(PeerUnavailable("the coordinator is gone"))


def all_partitions(request: AddPartitionsToTxnRequest, code: ErrorCode) -> AddPartitionsToTxnResponse:
    """Return a response with one code for all partitions."""
    return AddPartitionsToTxnResponse(
        results_by_transaction=[
            AddPartitionsToTxnResult(
                one.transactional_id,
                [
                    AddPartitionsToTxnTopicResult(
                        topic.name, [AddPartitionsToTxnPartitionResult(index, code) for index in topic.partitions]
                    )
                    for topic in one.topics
                ],
            )
            for one in request.transactions
        ]
    )


def make_verifier(
    runtime: Runtime, image: Callable[[], MetadataImage], peers: FakeCoordinators, listener: str = "PLAINTEXT"
) -> TransactionVerifier:
    """Return a verifier that asks fake coordinators."""
    return TransactionVerifier(runtime, peers, image, listener, lambda: VerifierSettings(30_000, 20, 100))
