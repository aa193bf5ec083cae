"""Three nodes, an unclean election, and librdkafka consumers that had read what it lost: they must find out (KIP-320).

Offsets 0 to 2 survive. Offsets 3 to 5, of the first leader's epoch, are lost. In "long", others take their place and go
on beyond, so that positions seem valid; in "short", the log ends below the consumers' positions.
"""

import contextlib
import time
from collections.abc import Iterator
from typing import NamedTuple

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from protocol.errors import ErrorCode
from protocol.messages.fetch import PartitionData
from tests.support.clients.leader_epoch_requests import EpochQuestions
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
    """What a consumer is told next: a record, or an error alone."""

    offset: int | None
    value: str | None
    epoch: int | None
    error: KafkaError | None = None

    @property
    def tells_truncation(self) -> bool:
        """What librdkafka says where no policy is set, with the offset that is right."""
        error = self.error
        if error is None or error.code() != KafkaError._AUTO_OFFSET_RESET:
            return False
        return "log truncation detected" in error.str() and f"broker end offset is {FIRST_LOST} " in error.str()


class Reader:
    """A consumer of the one partition of a topic, in a group of its own, with a policy of what to do when lost."""

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
        """With the epoch of the commit. librdkafka checks positions that are sought, not those that it starts with."""
        position = self.committed()
        self._consumer.assign([position])
        deadline = time.monotonic() + TIMEOUT_S
        while not self._seek(position):
            assert time.monotonic() < deadline, "the partition is not being fetched"
            time.sleep(0.01)

    def _seek(self, position: TopicPartition) -> bool:
        """False while the consumer has not begun to fetch."""
        try:
            self._consumer.seek(position)
        except KafkaException as error:
            if error.args[0].code() == KafkaError._STATE:
                return False
            raise
        return True

    def next(self) -> Seen:
        """What is not about the cluster's nodes is told; what is passes by itself."""
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
        raise AssertionError(f"nothing came from {self.topic} in time")

    def read(self, count: int) -> list[Seen]:
        return [self.next() for _ in range(count)]

    def commit(self, epoch: int | None) -> None:
        """Where it stands, after a record of that epoch."""
        offset = TopicPartition(self.topic, 0, POSITION, leader_epoch=-1 if epoch is None else epoch)
        self._consumer.commit(offsets=[offset], asynchronous=False)

    def committed(self) -> TopicPartition:
        (found,) = self._consumer.committed([TopicPartition(self.topic, 0)], timeout=TIMEOUT_S)
        assert found.error is None, found.error
        return found

    def close(self) -> None:
        self._consumer.close()


class Truncation(NamedTuple):
    """The cluster after all that, and the consumers that were there before."""

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
    """Commits of groups that nobody is in: as consumers of today do, and as those do that know no epochs."""
    for topic in NEW:
        for group, epoch in (("knowing", FIRST_EPOCH), ("unknowing", None)):
            with contextlib.closing(Reader(cluster.bootstrap, topic, "error", group)) as reader:
                reader.commit(epoch)


@contextlib.contextmanager
def restarted(truncation: Truncation, topic: str, reset: str, group: str) -> Iterator[Reader]:
    """Another consumer, from where the group has committed."""
    with contextlib.closing(Reader(truncation.cluster.bootstrap, topic, reset, group)) as reader:
        reader.start_at_committed()
        yield reader


def is_new(seen: Seen, offset: int) -> bool:
    """A record of the second leader."""
    return (seen.offset, seen.value) == (offset, f"new-{offset}") and (seen.epoch or 0) > FIRST_EPOCH


@pytest.mark.parametrize("topic", NEW)
class TestConsumers:
    @pytest.mark.parametrize("reset", ["earliest", "latest"])
    def test_go_back_to_where_the_logs_part(self, truncation: Truncation, topic: str, reset: str) -> None:
        reader = truncation.readers[topic, reset]
        assert is_new(reader.next(), FIRST_LOST)

    def test_are_told_where_they_set_no_policy(self, truncation: Truncation, topic: str) -> None:
        reader = truncation.readers[topic, "error"]
        seen = reader.next()
        assert seen.tells_truncation, seen
        reader.start_at(FIRST_LOST)
        assert is_new(reader.next(), FIRST_LOST)

    def test_commit_the_epoch_of_what_they_read(self, truncation: Truncation, topic: str) -> None:
        for group, epoch in (("knowing", FIRST_EPOCH), ("unknowing", None)):
            with restarted(truncation, topic, "error", group) as reader:
                found = reader.committed()
            assert (found.offset, found.leader_epoch) == (POSITION, epoch)

    @pytest.mark.parametrize("reset", ["earliest", "latest"])
    def test_find_out_after_a_restart(self, truncation: Truncation, topic: str, reset: str) -> None:
        with restarted(truncation, topic, reset, "knowing") as reader:
            assert is_new(reader.next(), FIRST_LOST)

    def test_are_told_after_a_restart(self, truncation: Truncation, topic: str) -> None:
        with restarted(truncation, topic, "error", "knowing") as reader:
            seen = reader.next()
        assert seen.tells_truncation, seen

    def test_go_on_blindly_without_an_epoch(self, truncation: Truncation, topic: str) -> None:
        """What KIP-320 is there for: the position looks good, or is beyond the end."""
        with restarted(truncation, topic, "error", "unknowing") as reader:
            seen = reader.next()
        if topic == "long":
            assert is_new(seen, POSITION)
        else:
            assert seen.error is not None
            assert "Offset out of range" in seen.error.str()


class TestBrokers:
    """What the nodes answer to the requests behind all that."""

    def test_the_leader_knows_where_its_predecessor_ended(self, truncation: Truncation) -> None:
        cluster = truncation.cluster
        epoch = cluster.partition("long").leader_epoch
        with EpochQuestions.asked(cluster.follower.address, "long") as leader:
            for version in (2, 3, 4):
                end = leader.end_of(FIRST_EPOCH, epoch, highest=version)
                assert (end.error_code, end.leader_epoch, end.end_offset) == (0, FIRST_EPOCH, FIRST_LOST)
            end = leader.end_of(epoch)
            assert (end.error_code, end.leader_epoch, end.end_offset) == (0, epoch, 9)
            beyond = leader.end_of(epoch + 1)
            assert (beyond.error_code, beyond.leader_epoch, beyond.end_offset) == (0, -1, -1)

    def test_offsets_are_listed_with_their_epochs(self, truncation: Truncation) -> None:
        cluster = truncation.cluster
        epoch = cluster.partition("long").leader_epoch
        with EpochQuestions.asked(cluster.follower.address, "long") as leader:
            latest, earliest = leader.offset_at(-1, epoch), leader.offset_at(-2, epoch)
            assert (latest.offset, latest.leader_epoch) == (9, epoch)
            assert (earliest.offset, earliest.leader_epoch) == (0, FIRST_EPOCH)
            assert leader.offset_at(-1, highest=3).leader_epoch == -1

    def test_a_consumer_that_names_its_last_epoch_learns_of_it_in_fetch(self, truncation: Truncation) -> None:
        cluster = truncation.cluster
        with EpochQuestions.asked(cluster.follower.address, "long") as leader:
            found = fetched(leader, POSITION, last_fetched=FIRST_EPOCH)
            assert found.error_code == 0
            assert not found.records
            assert (found.diverging_epoch.epoch, found.diverging_epoch.end_offset) == (FIRST_EPOCH, FIRST_LOST)
            found = fetched(leader, FIRST_LOST, last_fetched=FIRST_EPOCH)
            assert found.diverging_epoch.epoch == -1
            assert found.records

    def test_those_who_believe_in_another_epoch_are_fenced(self, truncation: Truncation) -> None:
        cluster = truncation.cluster
        epoch = cluster.partition("long").leader_epoch
        for node in (cluster.leader, cluster.follower):
            with EpochQuestions.asked(node.address, "long") as asked:
                for current, error in (
                    (epoch - 1, ErrorCode.FENCED_LEADER_EPOCH),
                    (epoch + 1, ErrorCode.UNKNOWN_LEADER_EPOCH),
                ):
                    assert fetched(asked, 0, current).error_code == error
                    assert asked.offset_at(-1, current).error_code == error
                    assert asked.end_of(FIRST_EPOCH, current).error_code == error

    def test_only_the_leader_tells_of_offsets_and_epochs(self, truncation: Truncation) -> None:
        cluster = truncation.cluster
        for node in (cluster.leader, cluster.controller):
            with EpochQuestions.asked(node.address, "long") as asked:
                assert asked.offset_at(-1).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
                assert asked.end_of(FIRST_EPOCH).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    def test_all_nodes_name_the_epoch_of_the_leader(self, truncation: Truncation) -> None:
        cluster = truncation.cluster
        epoch = cluster.partition("long").leader_epoch
        assert epoch > FIRST_EPOCH
        for node in (cluster.leader, cluster.follower, cluster.controller):
            with EpochQuestions.asked(node.address, "long") as asked:
                (known,) = asked.metadata().partitions
                (old,) = asked.metadata(highest=6).partitions
            assert (known.leader_id, known.leader_epoch) == (cluster.follower.id, epoch)
            assert (old.leader_id, old.leader_epoch) == (cluster.follower.id, -1)

    def test_whoever_asks_the_wrong_node_is_told_the_right_one(self, truncation: Truncation) -> None:
        """KIP-951."""
        cluster = truncation.cluster
        epoch = cluster.partition("long").leader_epoch
        host, _, port = cluster.follower.address.rpartition(":")
        right = (cluster.follower.id, host, int(port))
        with EpochQuestions.asked(cluster.leader.address, "long") as asked:
            refused = asked.produce(batch(b"to nobody"))
            (entry,) = refused.responses[0].partition_responses
            assert entry.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert (entry.current_leader.leader_id, entry.current_leader.leader_epoch) == (right[0], epoch)
            assert [(each.node_id, each.host, each.port) for each in refused.node_endpoints] == [right]
        for node, current in ((cluster.leader, FIRST_EPOCH), (cluster.controller, -1)):
            with EpochQuestions.asked(node.address, "long") as asked:
                answer = asked.fetch(0, current)
            (found,) = answer.responses[0].partitions
            assert found.error_code in (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            assert (found.current_leader.leader_id, found.current_leader.leader_epoch) == (right[0], epoch)
            assert [(each.node_id, each.host, each.port) for each in answer.node_endpoints] == [right]


def fetched(asked: EpochQuestions, offset: int, current: int = -1, last_fetched: int = -1) -> PartitionData:
    return asked.fetch(offset, current, last_fetched).responses[0].partitions[0]


def test_the_first_leader_has_forgotten_what_was_lost(truncation: Truncation) -> None:
    """It leads again; its history is the other's now. This comes last: it changes the leader."""
    cluster = truncation.cluster
    before = cluster.partition("long").leader_epoch
    cluster.elect_preferred()
    epoch = cluster.partition("long").leader_epoch
    assert epoch > before
    with EpochQuestions.asked(cluster.leader.address, "long") as leader:
        end = leader.end_of(FIRST_EPOCH, epoch)
        assert (end.leader_epoch, end.end_offset) == (FIRST_EPOCH, FIRST_LOST)
        end = leader.end_of(before, epoch)
        assert (end.leader_epoch, end.end_offset) == (before, 9)
    with restarted(truncation, "long", "latest", "knowing") as reader:
        assert [seen.value for seen in reader.read(6)] == NEW["long"]
