"""The quorum of one voter: durability order, elections, and crashes at any point."""

from collections.abc import Sequence
from random import Random

import pytest

from broker.quorum.core import BatchTooLarge, NotLeader
from broker.quorum.identity import KRaftVersions
from broker.quorum.membership.voters import VoterNode, VoterSet
from broker.quorum.ready import ElectionState
from broker.quorum.settings import MAX_BATCH_BYTES
from broker.runtime.quorum.quorum import CommittedBatch
from broker.runtime.quorum.state_file import InvalidQuorumState, QuorumStateFile, to_json
from protocol.compiler import decode
from protocol.ids import LeaderEpoch
from protocol.messages.common_records import LeaderChangeMessage, VotersRecord
from protocol.primitives import uuid_from_text
from protocol.records.control import ControlType, control_type
from storage.errors import LogDirFailure
from storage.files import join, read_file, replace_file
from tests.broker.metadata.images import uuid
from tests.broker.runtime.quorum.quorum_node import DIRECTORY, QuorumNode, RecordingListener, format_voters, listeners
from tests.support.fakes.batches import iter_all_records
from tests.support.fakes.memory_files import MemoryFileSystem, checked
from tests.support.quorum_values import leader_and_epoch, make_election_state, replica_key


def control_records(node: QuorumNode) -> list[tuple[int, ControlType, bytes]]:
    """Return (offset, type, value) of every control record in the log."""
    data = node.log.read(0, 1 << 20, node.log.log_end_offset).data
    found = []
    for header, record in iter_all_records(data):
        if header.is_control:
            kind = control_type(record.key)
            assert kind is not None
            found.append((record.offset, kind, record.value or b""))
    return found


class FailingListener(RecordingListener):
    """A listener that stops after the batches present at its start."""

    def on_commit(self, batches: Sequence[CommittedBatch]) -> None:
        if any(batch.frames for batch in batches):
            raise ValueError("cannot apply")


class TestFirstElection:
    def test_log_starts_with_leader_change_and_voters(self) -> None:
        node = QuorumNode().start()
        kinds = [(offset, kind) for offset, kind, _ in control_records(node)]
        assert kinds == [(0, ControlType.LEADER_CHANGE), (1, ControlType.KRAFT_VERSION), (2, ControlType.KRAFT_VOTERS)]
        change, _ = decode(LeaderChangeMessage, control_records(node)[0][2], 0)
        assert (change.leader_id, [voter.voter_id for voter in change.voters]) == (1, [1])
        voters, _ = decode(VotersRecord, control_records(node)[2][2], 0)
        assert [(each.name, each.port) for each in voters.voters[0].endpoints] == [("CONTROLLER", 9093)]

    def test_listener_gets_the_leader_after_all_earlier_batches(self) -> None:
        node = QuorumNode().start()
        assert node.listener.events == ["0-2", "leader 1 in 1"]
        assert (node.quorum.leader, node.quorum.high_watermark) == (leader_and_epoch(1, 1), 3)

    def test_epoch_is_on_disk_before_its_first_record(self) -> None:
        node = QuorumNode()
        node.io.is_held = True
        node.start()
        assert node.log.log_end_offset == 0
        node.io.release()
        node.settle()
        assert node.log.log_end_offset == 3
        renamed = next(index for index, (_, path) in enumerate(node.fs.log) if "quorum-state" in path)
        written = next(i for i, (what, path) in enumerate(node.fs.log) if what == "write" and path.endswith(".log"))
        assert renamed < written

    def test_state_file_has_kafkas_format(self) -> None:
        node = QuorumNode().start()
        content = read_file(checked(node.fs), join(DIRECTORY, "quorum-state"))
        assert content == to_json(make_election_state(1, 1, 1, uuid(9)))

    def test_formatted_voters_are_copied_into_the_log(self) -> None:
        fs = MemoryFileSystem()
        format_voters(fs, VoterNode(replica_key(1, uuid(9)), listeners(port=1)))
        node = QuorumNode(fs).start()
        assert node.quorum.facts.voters == VoterSet([VoterNode(replica_key(1, uuid(9)), listeners(), KRaftVersions())])


class TestAppend:
    def test_offsets_are_assigned_at_once_and_committed_after_the_sync(self) -> None:
        node = QuorumNode().start()
        node.io.is_held = True
        assert node.append(b"a", b"b") == 4
        assert node.append(b"c") == 5
        node.settle()
        assert node.listener.frames == []
        assert node.quorum.high_watermark == 3
        node.io.release()
        node.settle()
        assert node.listener.frames == [b"a", b"b", b"c"]
        assert node.quorum.high_watermark == 6

    def test_appends_during_a_sync_share_the_next(self) -> None:
        node = QuorumNode().start()
        node.io.is_held = True
        for number in range(10):
            node.append(bytes([number]))
            node.settle()
        assert node.io.waiting == 1
        node.io.run_all()
        node.settle()
        assert node.io.waiting == 1
        node.io.release()
        node.settle()
        assert len(node.listener.frames) == 10

    def test_append_requires_the_leader_of_the_epoch(self) -> None:
        node = QuorumNode()
        with pytest.raises(NotLeader):
            node.quorum.append(LeaderEpoch(1), [b"a"])
        node.start()
        for epoch in (0, 2):
            with pytest.raises(NotLeader):
                node.quorum.append(LeaderEpoch(epoch), [b"a"])

    def test_batch_above_the_limit_is_refused(self) -> None:
        node = QuorumNode().start()
        with pytest.raises(BatchTooLarge):
            node.append(bytes(MAX_BATCH_BYTES))
        assert node.append(b"small") == 3

    def test_late_listener_gets_the_whole_log(self) -> None:
        node = QuorumNode().start()
        node.append(b"a")
        node.settle()
        late = RecordingListener()
        node.quorum.add_listener(late)
        node.settle()
        assert late.events == ["0-2", "3-3", "leader 1 in 1"]
        node.append(b"b")
        node.settle()
        assert late.frames == [b"a", b"b"]


class TestResign:
    def test_only_voter_leads_again_in_the_next_epoch(self) -> None:
        node = QuorumNode().start()
        node.io.is_held = True
        node.append(b"a")
        node.quorum.resign(1)
        with pytest.raises(NotLeader):
            node.append(b"b")
        node.io.release()
        node.settle()
        assert node.quorum.leader.leader_id == 1
        epoch = node.quorum.leader.epoch
        assert epoch > 1
        assert node.listener.events == [
            "0-2",
            "leader 1 in 1",
            f"leader None in {epoch}",
            "3-3",
            "4-4",
            f"leader 1 in {epoch}",
        ]
        assert node.append(b"c") == 5

    def test_resigning_from_a_past_epoch_has_no_effect(self) -> None:
        node = QuorumNode().start()
        node.quorum.resign(0)
        assert node.quorum.leader == leader_and_epoch(1, 1)


class TestRestart:
    def test_each_start_begins_an_epoch_with_one_leader_change(self) -> None:
        first = QuorumNode().start()
        first.append(b"a")
        first.settle()
        second = QuorumNode(first.fs).start()
        epoch = second.quorum.leader.epoch
        assert (second.quorum.leader.leader_id, epoch > 1) == (1, True)
        assert [kind for _, kind, _ in control_records(second)][3:] == [ControlType.LEADER_CHANGE]
        assert second.listener.events == ["0-2", "3-3", "4-4", f"leader 1 in {epoch}"]
        assert second.listener.frames == [b"a"]

    def test_changed_listener_is_written_to_the_log(self) -> None:
        first = QuorumNode().start()
        second = QuorumNode(first.fs, port=9999).start()
        assert [kind for _, kind, _ in control_records(second)][3:] == [
            ControlType.LEADER_CHANGE,
            ControlType.KRAFT_VERSION,
            ControlType.KRAFT_VOTERS,
        ]

    def test_log_epoch_applies_if_the_state_file_is_older(self) -> None:
        first = QuorumNode().start()
        replace_file(checked(first.fs), join(DIRECTORY, "quorum-state"), to_json(ElectionState()))
        assert QuorumNode(first.fs).start().quorum.leader.epoch == 2

    def test_observer_fetches_from_voters_and_does_not_lead(self) -> None:
        first = QuorumNode().start()
        other = QuorumNode(first.fs, node_id=2, port=9999).start()
        other.pass_time(60_000)
        assert (other.quorum.leader.leader_id, other.quorum.facts.role) == (1, "observer")
        assert other.log.log_end_offset == 3
        assert {to_id for to_id, _ in other.network.sent} == {1}

    @pytest.mark.parametrize(
        "content", [b"", b"{", b"[]", b'{"data_version":9}', b'{"leaderId":"x","leaderEpoch":1,"data_version":1}']
    )
    def test_invalid_state_file_stops_the_start(self, content: bytes) -> None:
        first = QuorumNode().start()
        replace_file(checked(first.fs), join(DIRECTORY, "quorum-state"), content)
        with pytest.raises(InvalidQuorumState):
            QuorumNode(first.fs)

    def test_state_file_of_static_voters_is_read(self) -> None:
        content = (
            b'{"clusterId":"","leaderId":1,"leaderEpoch":7,"votedId":-1,"appliedOffset":0,'
            b'"currentVoters":[{"voterId":1}],"data_version":0}'
        )
        fs = MemoryFileSystem()
        checked(fs).make_directory(DIRECTORY)
        replace_file(checked(fs), join(DIRECTORY, "quorum-state"), content)
        format_voters(fs, VoterNode(replica_key(1, uuid(9)), listeners()))
        assert QuorumNode(fs).start().quorum.leader.epoch > 7

    def test_voted_directory_id_is_restored(self) -> None:
        fs = MemoryFileSystem()
        checked(fs).make_directory(DIRECTORY)
        file = QuorumStateFile(checked(fs), DIRECTORY)
        state = make_election_state(3, -1, 2, uuid_from_text("is52P1UlQWem0ILt--_h1Q"))
        file.write(state)
        assert file.read() == state


class TestFailure:
    def test_failed_sync_stops_the_node_without_a_commit(self) -> None:
        node = QuorumNode().start()
        node.fs.fail("sync", path_part=".log")
        node.append(b"a")
        node.settle()
        assert [type(each) for each in node.failures] == [LogDirFailure]
        assert node.listener.frames == []
        with pytest.raises(NotLeader):
            node.append(b"b")

    def test_failed_write_stops_the_node(self) -> None:
        node = QuorumNode().start()
        node.fs.fail("write", path_part=".log")
        node.append(b"a")
        node.settle()
        assert [type(each) for each in node.failures] == [LogDirFailure]
        assert node.listener.frames == []

    def test_listener_exception_stops_the_node(self) -> None:
        node = QuorumNode().start()
        node.quorum.add_listener(FailingListener())
        node.append(b"a")
        node.settle()
        assert [str(each) for each in node.failures] == ["cannot apply"]

    def test_listeners_get_nothing_after_close(self) -> None:
        node = QuorumNode().start()
        node.io.is_held = True
        node.append(b"a")
        node.quorum.close()
        node.io.release()
        node.settle()
        assert node.listener.frames == []
        assert node.failures == []
        assert node.quorum.leader.leader_id is None


@pytest.mark.parametrize("seed", range(60))
def test_crash_at_any_point_loses_no_committed_record(seed: int) -> None:
    """Append in bursts with syncs at random moments, lose power, restart, repeatedly.

    The batches delivered in one process are a prefix of those in every later process, at equal offsets; epochs only
    grow; an uncommitted batch survives as a whole or not at all.
    """
    random = Random(seed)
    node = QuorumNode()
    committed: list[tuple[int, bytes]] = []
    epoch, serial = 0, 0
    for _ in range(5):
        node.io.is_held = random.random() < 0.3
        node.start()
        for _ in range(random.randrange(25)):
            match random.randrange(4):
                case 0:
                    node.io.is_held = not node.io.is_held
                    node.io.run_all()
                case 1:
                    node.settle()
                case _ if node.quorum.leader.leader_id == 1:
                    frames = [f"{serial + index}".encode() for index in range(random.randrange(1, 5))]
                    serial += len(frames)
                    node.append(*frames)
        delivered = [(batch.base_offset, batch.epoch, list(batch.frames)) for batch in node.listener.batches]
        flat = [(base + index, bytes(frame)) for base, _, frames in delivered for index, frame in enumerate(frames)]
        if flat:  # a process may be too short to commit anything
            assert flat[: len(committed)] == committed
            committed = flat
        if node.quorum.leader.leader_id == 1:
            assert node.quorum.leader.epoch > epoch
            epoch = node.quorum.leader.epoch
        assert node.failures == []
        node = node.crash(random)
    node.start()
    final = {batch.base_offset: batch for batch in node.listener.batches}
    flat = [
        (base + index, bytes(frame))
        for base, batch in sorted(final.items())
        for index, frame in enumerate(batch.frames)
    ]
    assert flat[: len(committed)] == committed
    values = [int(value) for _, value in flat]
    assert values == sorted(set(values)), "every batch is delivered once and in order"
