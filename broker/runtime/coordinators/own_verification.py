"""Questions of this node's partition leaders to its own transaction coordinator (KIP-890), without a request.

Kafka sends them over the network like any other, and so does a leader whose coordinator is another node
(`transaction_verifier.py`). Nothing passes a listener here, so neither authorization nor quotas apply.
"""

from collections.abc import Awaitable, Callable, Mapping

from broker.metadata.image.metadata_image import MetadataImage
from broker.runtime.coordinators.transaction_coordinator import Result, TransactionCoordinator
from broker.transactions.state import EPOCH_PER_TRANSACTION, ProducerIdAndEpoch, TransactionPartition
from broker.transactions.verification import TopicPartition, Verification, VerificationMode
from protocol.errors import ErrorCode, KafkaError

Errors = Mapping[TopicPartition, ErrorCode]
_Codes = Mapping[TransactionPartition, ErrorCode]


class OwnVerification:
    """Answers questions about transactional ids that this node coordinates. `image` returns the latest metadata."""

    def __init__(self, transactions: TransactionCoordinator, image: Callable[[], MetadataImage]) -> None:
        self._transactions = transactions
        self._image = image

    def __call__(self, question: Verification) -> Result[Errors]:
        """Return the errors of partitions that are not in the transaction, at once if no commit is awaited."""
        image = self._image()
        unknown = [each for each in question.partitions if not _exists(image, each)]
        if unknown:
            codes = dict.fromkeys(question.partitions, ErrorCode.OPERATION_NOT_ATTEMPTED)
            return question.errors(codes | dict.fromkeys(unknown, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        try:
            answer = self._ask(question)
        except KafkaError as error:
            return _failed(question, error.code)
        return _later(question, answer) if isinstance(answer, Awaitable) else _errors(question, answer)

    def _ask(self, question: Verification) -> Result[_Codes | None]:
        producer = ProducerIdAndEpoch(question.producer_id, question.producer_epoch)
        partitions = [TransactionPartition(*each) for each in question.partitions]
        if question.mode is VerificationMode.ADD:
            return self._transactions.add_partitions(
                question.transactional_id, producer, partitions, EPOCH_PER_TRANSACTION
            )
        return self._transactions.verify_partitions(question.transactional_id, producer, partitions)


async def _later(question: Verification, answer: Awaitable[_Codes | None]) -> Errors:
    try:
        return _errors(question, await answer)
    except KafkaError as error:
        return _failed(question, error.code)


def _errors(question: Verification, codes: _Codes | None) -> Errors:
    """Return the errors for the coordinator's codes, which are None if it has added all partitions."""
    if codes is None:
        return {}
    return question.errors({(each.topic, each.partition): code for each, code in codes.items()})


def _failed(question: Verification, code: ErrorCode) -> Errors:
    return question.errors(dict.fromkeys(question.partitions, code))


def _exists(image: MetadataImage, partition: TopicPartition) -> bool:
    topic = image.topics.by_name(partition[0])
    return topic is not None and topic.partition(partition[1]) is not None
