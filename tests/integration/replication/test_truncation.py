"""Log truncation after an unclean election, as librdkafka consumers detect it (KIP-320).

Offsets 0 to 2 survive. Offsets 3 to 5, of the first leader's epoch, are lost. In topic "long" the second leader writes
beyond them, so that the consumers' positions seem valid. In "short" the log ends below the positions.
"""

import contextlib
import time
from collections.abc import Iterator
from typing import NamedTuple

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from protocol.errors import ErrorCode
from protocol.messages.fetch import PartitionData
from tests.support.clients.leader_epoch_requests import LeaderEpochClient
from tests.support.harnesses.data_plane import batch
from tests.support.kafka.kraft_nodes import Make
from tests.support.kafka.unclean_election import UncleanElection

pytestmark = pytest.mark.integration

TIMEOUT_S = 120.0
KEPT = [f"old-{offset}" for offset in range(3)]
LOST = [f"old-{offset}" for offset in range(3, 6)]
NEW = {"long": [f"new-{offset}" for offset in range(3, 9)], "short": ["new-3"]}
FIRST_LOST, POSITION = len(KEPT), len(KEPT + LOST)
FIRST_EPOCH = 0


class Seen(NamedTuple):
    """A consumer's next record or error."""

    offset: int | None
    value: str | None
    epoch: int | None
    error: KafkaError | None = None

    @property
    def reports_truncation(self) -> bool:
        """Whether librdkafka reports truncation with the right offset, as it does without a reset policy."""
        error = self.error
        if error is None or error.code() != KafkaError._AUTO_OFFSET_RESET:
            return False
        return "log truncation detected" in error.str() and f"broker end offset is {FIRST_LOST} " in error.str()


class Reader:
    """A consumer of a topic's only partition, with its own group and reset policy."""

    def __init__(self, bootstrap: str, topic: str, reset: str, group: str | None = None) -> None:
        self.topic = topic
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group or f"{topic}-{reset}",
                "auto.offset.reset": reset,
                "enable.auto.commit": False,
                "topic.metadata.refresh.interval.ms": 500,
                "socket.timeout.ms": 5000,
                "reconnect.backoff.max.ms": 500,
            }
        )

    def start_at(self, offset: int) -> None:
        self._consumer.assign([TopicPartition(self.topic, 0, offset)])

    def start_at_committed(self) -> None:
        """Start at the committed offset and epoch. librdkafka validates positions that are sought, not initial ones."""
        position = self.committed()
        self._consumer.assign([position])
        deadline = time.monotonic() + TIMEOUT_S
        while not self._seek(position):
            assert time.monotonic() < deadline, "the consumer has not begun to fetch"
            time.sleep(0.01)

    def _seek(self, position: TopicPartition) -> bool:
        """Seek, or return False while the consumer has not begun to fetch."""
        try:
            self._consumer.seek(position)
        except KafkaException as error:
            if error.args[0].code() == KafkaError._STATE:
                return False
            raise
        return True

    def next(self) -> Seen:
        """Return the next record or error. Skip errors about the cluster's nodes, which are transient."""
        deadline = time.monotonic() + TIMEOUT_S
        while time.monotonic() < deadline:
            message = self._consumer.poll(0.2)
            if message is None:
                continue
            error = message.error()
            if error is None:
                return Seen(message.offset(), (message.value() or b"").decode(), message.leader_epoch())
            if error.code() not in (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT):
                return Seen(None, None, None, error)
        raise AssertionError(f"no record or error from {self.topic} in time")

    def read(self, count: int) -> list[Seen]:
        return [self.next() for _ in range(count)]

    def commit(self, epoch: int | None) -> None:
        """Commit the current position with the leader epoch of the last record."""
        offset = TopicPartition(self.topic, 0, POSITION, leader_epoch=-1 if epoch is None else epoch)
        self._consumer.commit(offsets=[offset], asynchronous=False)

    def committed(self) -> TopicPartition:
        (found,) = self._consumer.committed([TopicPartition(self.topic, 0)], timeout=TIMEOUT_S)
        assert found.error is None, found.error
        return found

    def close(self) -> None:
        self._consumer.close()


class Truncation(NamedTuple):
    """The cluster after the unclean election, and the consumers that had read before it."""

    cluster: UncleanElection
    readers: dict[tuple[str, str], Reader]


@pytest.fixture(scope="module")
def truncation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Truncation]:
    with contextlib.ExitStack() as stack:
        cluster = stack.enter_context(UncleanElection(tmp_path_factory.mktemp("nodes"), Make.OTTLA, list(NEW)))
        for topic in NEW:
            cluster.produce(topic, *KEPT)
        cluster.suspend_follower()
        for topic in NEW:
            cluster.produce(topic, *LOST)
        readers = {}
        for topic in NEW:
            for reset in ("earliest", "latest", "error"):
                reader = readers[topic, reset] = Reader(cluster.bootstrap, topic, reset)
                stack.callback(reader.close)
                reader.start_at(0)
        for reader in readers.values():
            assert [seen.value for seen in reader.read(POSITION)] == KEPT + LOST
        leave_offsets(cluster)
        cluster.elect_uncleanly()
        for topic, values in NEW.items():
            cluster.produce(topic, *values)
        cluster.bring_back()
        yield Truncation(cluster, readers)


def leave_offsets(cluster: UncleanElection) -> None:
    """Commit offsets for groups without members, with a leader epoch and, as old clients do, without one."""
    for topic in NEW:
        for group, epoch in (("knowing", FIRST_EPOCH), ("unknowing", None)):
            with contextlib.closing(Reader(cluster.bootstrap, topic, "error", group)) as reader:
                reader.commit(epoch)


@contextlib.contextmanager
def restarted(truncation: Truncation, topic: str, reset: str, group: str) -> Iterator[Reader]:
    """Return a new consumer that starts at the group's committed offset."""
    with contextlib.closing(Reader(truncation.cluster.bootstrap, topic, reset, group)) as reader:
        reader.start_at_committed()
        yield reader


def is_new(seen: Seen, offset: int) -> bool:
    """Whether the record is one of the second leader."""
    return (seen.offset, seen.value) == (offset, f"new-{offset}") and (seen.epoch or 0) > FIRST_EPOCH


@pytest.mark.parametrize("topic", NEW)
class TestConsumers:
    @pytest.mark.parametrize("reset", ["earliest", "latest"])
    def test_consumer_with_reset_policy_resumes_at_the_divergence(
        self, truncation: Truncation, topic: str, reset: str
    ) -> None:
        reader = truncation.readers[topic, reset]
        assert is_new(reader.next(), FIRST_LOST)

    def test_consumer_without_reset_policy_gets_a_truncation_error(self, truncation: Truncation, topic: str) -> None:
        reader = truncation.readers[topic, "error"]
        seen = reader.next()
        assert seen.reports_truncation, seen
        reader.start_at(FIRST_LOST)
        assert is_new(reader.next(), FIRST_LOST)

    def test_commit_stores_the_leader_epoch_of_the_last_record(self, truncation: Truncation, topic: str) -> None:
        for group, epoch in (("knowing", FIRST_EPOCH), ("unknowing", None)):
            with restarted(truncation, topic, "error", group) as reader:
                found = reader.committed()
            assert (found.offset, found.leader_epoch) == (POSITION, epoch)

    @pytest.mark.parametrize("reset", ["earliest", "latest"])
    def test_restarted_consumer_resumes_at_the_divergence(self, truncation: Truncation, topic: str, reset: str) -> None:
        with restarted(truncation, topic, reset, "knowing") as reader:
            assert is_new(reader.next(), FIRST_LOST)

    def test_restarted_consumer_without_reset_policy_gets_a_truncation_error(
        self, truncation: Truncation, topic: str
    ) -> None:
        with restarted(truncation, topic, "error", "knowing") as reader:
            seen = reader.next()
        assert seen.reports_truncation, seen

    def test_commit_without_leader_epoch_hides_the_truncation(self, truncation: Truncation, topic: str) -> None:
        """Show the loss that KIP-320 prevents: the position seems valid, or is beyond the log end."""
        with restarted(truncation, topic, "error", "unknowing") as reader:
            seen = reader.next()
        if topic == "long":
            assert is_new(seen, POSITION)
        else:
            assert seen.error is not None
            assert "Offset out of range" in seen.error.str()


class TestBrokers:
    """Responses of the nodes to the requests that truncation detection uses."""

    def test_leader_returns_the_end_offset_of_the_previous_epoch(self, truncation: Truncation) -> None:
        cluster = truncation.cluster
        epoch = cluster.partition("long").leader_epoch
        with LeaderEpochClient.connect(cluster.follower.address, "long") as leader:
            for version in (2, 3, 4):
                end = leader.end_of(FIRST_EPOCH, epoch, highest=version)
                assert (end.error_code, end.leader_epoch, end.end_offset) == (0, FIRST_EPOCH, FIRST_LOST)
            end = leader.end_of(epoch)
            assert (end.error_code, end.leader_epoch, end.end_offset) == (0, epoch, 9)
            beyond = leader.end_of(epoch + 1)
            assert (beyond.error_code, beyond.leader_epoch, beyond.end_offset) == (0, -1, -1)

    def test_list_offsets_returns_leader_epochs(self, truncation: Truncation) -> None:
        cluster = truncation.cluster
        epoch = cluster.partition("long").leader_epoch
        with LeaderEpochClient.connect(cluster.follower.address, "long") as leader:
            latest, earliest = leader.offset_at(-1, epoch), leader.offset_at(-2, epoch)
            assert (latest.offset, latest.leader_epoch) == (9, epoch)
            assert (earliest.offset, earliest.leader_epoch) == (0, FIRST_EPOCH)
            assert leader.offset_at(-1, highest=3).leader_epoch == -1

    def test_fetch_with_last_fetched_epoch_returns_the_diverging_epoch(self, truncation: Truncation) -> None:
        cluster = truncation.cluster
        with LeaderEpochClient.connect(cluster.follower.address, "long") as leader:
            found = fetched(leader, POSITION, last_fetched=FIRST_EPOCH)
            assert found.error_code == 0
            assert not found.records
            assert (found.diverging_epoch.epoch, found.diverging_epoch.end_offset) == (FIRST_EPOCH, FIRST_LOST)
            found = fetched(leader, FIRST_LOST, last_fetched=FIRST_EPOCH)
            assert found.diverging_epoch.epoch == -1
            assert found.records

    def test_requests_with_another_leader_epoch_are_fenced(self, truncation: Truncation) -> None:
        cluster = truncation.cluster
        epoch = cluster.partition("long").leader_epoch
        for node in (cluster.leader, cluster.follower):
            with LeaderEpochClient.connect(node.address, "long") as asked:
                for current, error in (
                    (epoch - 1, ErrorCode.FENCED_LEADER_EPOCH),
                    (epoch + 1, ErrorCode.UNKNOWN_LEADER_EPOCH),
                ):
                    assert fetched(asked, 0, current).error_code == error
                    assert asked.offset_at(-1, current).error_code == error
                    assert asked.end_of(FIRST_EPOCH, current).error_code == error

    def test_only_the_leader_answers_for_offsets_and_epochs(self, truncation: Truncation) -> None:
        cluster = truncation.cluster
        for node in (cluster.leader, cluster.controller):
            with LeaderEpochClient.connect(node.address, "long") as asked:
                assert asked.offset_at(-1).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
                assert asked.end_of(FIRST_EPOCH).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    def test_all_nodes_return_the_leaders_epoch(self, truncation: Truncation) -> None:
        cluster = truncation.cluster
        epoch = cluster.partition("long").leader_epoch
        assert epoch > FIRST_EPOCH
        for node in (cluster.leader, cluster.follower, cluster.controller):
            with LeaderEpochClient.connect(node.address, "long") as asked:
                (known,) = asked.metadata().partitions
                (old,) = asked.metadata(highest=6).partitions
            assert (known.leader_id, known.leader_epoch) == (cluster.follower.id, epoch)
            assert (old.leader_id, old.leader_epoch) == (cluster.follower.id, -1)

    def test_wrong_node_names_the_current_leader(self, truncation: Truncation) -> None:
        """KIP-951: the error response names the current leader and its endpoint."""
        cluster = truncation.cluster
        epoch = cluster.partition("long").leader_epoch
        host, _, port = cluster.follower.address.rpartition(":")
        right = (cluster.follower.id, host, int(port))
        with LeaderEpochClient.connect(cluster.leader.address, "long") as asked:
            refused = asked.produce(batch(b"refused"))
            (entry,) = refused.responses[0].partition_responses
            assert entry.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert (entry.current_leader.leader_id, entry.current_leader.leader_epoch) == (right[0], epoch)
            assert [(each.node_id, each.host, each.port) for each in refused.node_endpoints] == [right]
        for node, current in ((cluster.leader, FIRST_EPOCH), (cluster.controller, -1)):
            with LeaderEpochClient.connect(node.address, "long") as asked:
                answer = asked.fetch(0, current)
            (found,) = answer.responses[0].partitions
            assert found.error_code in (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            assert (found.current_leader.leader_id, found.current_leader.leader_epoch) == (right[0], epoch)
            assert [(each.node_id, each.host, each.port) for each in answer.node_endpoints] == [right]


def fetched(asked: LeaderEpochClient, offset: int, current: int = -1, last_fetched: int = -1) -> PartitionData:
    return asked.fetch(offset, current, last_fetched).responses[0].partitions[0]


def test_first_leader_has_truncated_the_lost_records(truncation: Truncation) -> None:
    """Make the first leader lead again with the second leader's log. This test is last, since it changes the leader."""
    cluster = truncation.cluster
    before = cluster.partition("long").leader_epoch
    cluster.elect_preferred()
    epoch = cluster.partition("long").leader_epoch
    assert epoch > before
    with LeaderEpochClient.connect(cluster.leader.address, "long") as leader:
        end = leader.end_of(FIRST_EPOCH, epoch)
        assert (end.leader_epoch, end.end_offset) == (FIRST_EPOCH, FIRST_LOST)
        end = leader.end_of(before, epoch)
        assert (end.leader_epoch, end.end_offset) == (before, 9)
    with restarted(truncation, "long", "latest", "knowing") as reader:
        assert [seen.value for seen in reader.read(6)] == NEW["long"]
