"""BrokerTopicMetrics: traffic by topic and in total.

The hot path adds to the integers of one topic; totals are summed when read. Series of a topic end with the topic; its
counts stay in the totals.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from heapq import nlargest
from operator import attrgetter

from broker.metrics.family import Family, Sample
from protocol.lazy_dataclass import lazy_dataclass

_PREFIX = "kafka_server_brokertopicmetrics_"


@lazy_dataclass(slots=True, eq=False)
class TopicMeters:
    """Counts since the topic's first use on this broker. Sizes in bytes; records inside batches count as messages."""

    messages_in: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    bytes_rejected: int = 0
    total_produce_requests: int = 0
    failed_produce_requests: int = 0
    total_fetch_requests: int = 0
    failed_fetch_requests: int = 0
    total_share_fetch_requests: int = 0
    failed_share_fetch_requests: int = 0
    total_share_acknowledgement_requests: int = 0
    failed_share_acknowledgement_requests: int = 0
    replication_bytes_in: int = 0
    replication_bytes_out: int = 0
    invalid_magic_number_records: int = 0
    invalid_message_crc_records: int = 0
    invalid_offset_or_sequence_records: int = 0
    no_key_compacted_topic_records: int = 0
    remote_fetch_requests: int = 0
    remote_fetch_bytes: int = 0
    remote_fetch_errors: int = 0
    build_remote_log_aux_state_requests: int = 0
    build_remote_log_aux_state_errors: int = 0


_HELP = {
    "messages_in": "Records appended by producers",
    "bytes_in": "Bytes of record batches appended by producers",
    "bytes_out": "Bytes of record batches sent to consumers",
    "bytes_rejected": "Bytes of record batches refused for being too large",
    "total_produce_requests": "Produce requests, counted once per partition in them",
    "failed_produce_requests": "Produce requests that failed, counted once per partition",
    "total_fetch_requests": "Fetch requests, counted once per partition in them",
    "failed_fetch_requests": "Fetch requests that failed, counted once per partition",
    "total_share_fetch_requests": "Share fetches with records or an error, counted once per partition",
    "failed_share_fetch_requests": "Share fetches that failed, counted once per partition",
    "total_share_acknowledgement_requests": "Share acknowledgements, counted once per partition in them",
    "failed_share_acknowledgement_requests": "Share acknowledgements that failed, counted once per partition",
    "replication_bytes_in": "Bytes of record batches fetched from leaders",
    "replication_bytes_out": "Bytes of record batches sent to followers",
    "invalid_magic_number_records": "Batches refused for an unsupported record format",
    "invalid_message_crc_records": "Batches refused for a wrong checksum",
    "invalid_offset_or_sequence_records": "Batches refused for their offsets or sequence numbers",
    "no_key_compacted_topic_records": "Records refused on a compacted topic for having no key",
    "remote_fetch_requests": "Reads from remote storage for consumers",
    "remote_fetch_bytes": "Bytes of record batches read from remote storage for consumers",
    "remote_fetch_errors": "Reads from remote storage that failed, each attempt counted",
    "build_remote_log_aux_state_requests": "Attempts of followers to start after remote segments",
    "build_remote_log_aux_state_errors": "Failed attempts of followers to start after remote segments",
}


class BrokerTopicMetrics:
    """Meters by topic; `elsewhere` is for traffic that belongs to no topic."""

    __slots__ = ("_topics", "elsewhere")

    def __init__(self) -> None:
        self.elsewhere = TopicMeters()
        self._topics: dict[str, TopicMeters] = {}

    def topic(self, name: str) -> TopicMeters:
        """Return the meters of a topic, created at the first call. Never pass a name that only a client supplied."""
        meters = self._topics.get(name)
        if meters is None:
            meters = self._topics[name] = TopicMeters()
        return meters

    def remove(self, name: str) -> None:
        """End the series of a topic that this node no longer has."""
        meters = self._topics.pop(name, None)
        if meters is not None:
            for field in _HELP:
                setattr(self.elsewhere, field, getattr(self.elsewhere, field) + getattr(meters, field))

    def total(self, field: str) -> int:
        """Return the sum of a meter over all topics, deleted ones included."""
        value_of: Callable[[TopicMeters], int] = attrgetter(field)
        return value_of(self.elsewhere) + sum(map(value_of, self._topics.values()))

    def busiest(self, count: int) -> Sequence[tuple[str, TopicMeters]]:
        """Return the topics with the most bytes in and out since the start of the node, the most first."""
        if not count:
            return ()
        return nlargest(count, self._topics.items(), key=lambda each: each[1].bytes_in + each[1].bytes_out)

    def families(self) -> list[Family]:
        """Return one family per meter: the total without label, then every topic."""
        return [self._family(field.name) for field in fields(TopicMeters)]

    def _family(self, field: str) -> Family:
        value_of = attrgetter(field)

        def read() -> Iterable[Sample]:
            topics = list(self._topics.items())
            yield Sample(value_of(self.elsewhere) + sum(value_of(meters) for _, meters in topics))
            for name, meters in topics:
                yield Sample(value_of(meters), {"topic": name})

        return Family(f"{_PREFIX}{field.replace('_', '')}_total", _HELP[field], "counter", read)
