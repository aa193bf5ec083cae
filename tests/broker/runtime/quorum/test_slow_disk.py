"""Replicas whose fsyncs, or reads of snapshots, take longer than every timeout of the quorum."""

from random import Random

from broker.quorum.identity import LogPosition, ReplicaKey
from broker.quorum.messages import VoteRequest, VoteResponse
from protocol.ids import BrokerId, LeaderEpoch
from tests.broker.metadata.images import uuid
from tests.broker.runtime.quorum.quorum_node import CLUSTER_ID, QuorumNode
from tests.broker.runtime.quorum.quorum_trio import Trio, TrioNode


def vote_request(epoch: int, last: LogPosition, *, pre_vote: bool) -> VoteRequest:
    return VoteRequest(CLUSTER_ID, LeaderEpoch(epoch), ReplicaKey(BrokerId(9), uuid(9)), None, last, pre_vote)


def position_of(node: TrioNode) -> LogPosition:
    return LogPosition(node.driver.facts.log_end_epoch, node.driver.facts.log_end_offset)


class TestLeader:
    """The leader's disk is slow."""

    def test_followers_receive_and_commit_records_during_the_leaders_fsync(self) -> None:
        trio = Trio()
        trio.start()
        leader = trio.elect()
        epoch = leader.driver.leader.epoch
        leader.io.is_held = True
        for number in range(40):
            leader.append(b"%d" % number)
            trio.run(250)
        assert leader.driver.leader.epoch == epoch, "nobody takes the leader for dead"
        for node in trio.alive:
            assert node.listener.frames == [b"%d" % number for number in range(40)]
        assert leader.log.log.recovery_point < leader.log.log_end_offset, "the leader's own records are not on disk"

    def test_leader_does_not_count_itself_before_the_end_of_its_fsync(self) -> None:
        trio = Trio()
        trio.start()
        leader = trio.elect()
        one, two = trio.others(leader)
        two.io.is_held = leader.io.is_held = True
        trio.kill(two.id)
        offset = leader.append(b"x")
        trio.run(1_000)
        assert one.log.log_end_offset == offset + 1
        assert leader.driver.high_watermark == offset, "one voter of three has the record on disk"
        leader.io.release()
        trio.run(10)
        assert leader.driver.high_watermark == offset + 1

    def test_records_that_the_leader_loses_with_its_power_stay_committed(self) -> None:
        for seed in range(20):
            trio = Trio()
            trio.start()
            leader = trio.elect()
            leader.io.is_held = True
            leader.append(b"kept")
            trio.run(100)
            assert leader.listener.frames == [b"kept"]
            trio.kill(leader.id)
            leader.fs.crash(Random(seed))
            trio.start(leader.id)
            successor = trio.elect()
            successor.append(b"next")
            trio.run(3_000)
            for node in trio.alive:
                assert node.listener.frames == [b"kept", b"next"]

    def test_votes_that_change_no_durable_state_are_answered_during_an_fsync(self) -> None:
        trio = Trio()
        trio.start()
        leader = trio.elect()
        follower = trio.others(leader)[0]
        leader.io.is_held = follower.io.is_held = True
        leader.append(b"x")
        trio.run(50)
        assert leader.io.waiting
        assert follower.io.waiting
        for node in (leader, follower):
            answers = [
                node.driver.handle(vote_request(node.driver.facts.epoch, position_of(node), pre_vote=pre_vote))
                for pre_vote in (True, False)
            ]
            trio.run(1)
            for answer in answers:
                response = answer.result()
                assert isinstance(response, VoteResponse)
                assert not response.granted

    def test_fetches_and_votes_are_answered_while_a_trim_waits_for_an_fsync(self) -> None:
        trio = Trio(retention_bytes=0)
        trio.start()
        leader = trio.elect()
        epoch = leader.driver.leader.epoch
        leader.io.is_held = True
        leader.append(b"a")
        trio.run(100)
        assert leader.io.waiting
        leader.generate_snapshot()
        trio.run(1)
        start = leader.driver.facts.log_start_offset
        assert leader.log.log_start_offset < start, "the trim is postponed"
        for number in range(40):
            leader.append(b"%d" % number)
            trio.run(250)
        assert leader.driver.leader.epoch == epoch, "nobody takes the leader for dead"
        for node in trio.alive:
            assert node.listener.frames == [b"a", *(b"%d" % number for number in range(40))]
        answer = leader.driver.handle(vote_request(epoch, position_of(leader), pre_vote=True))
        trio.run(1)
        assert answer.done()
        leader.io.release()
        trio.run(10)
        assert leader.log.log_start_offset == start

    def test_deposed_leader_truncates_after_its_postponed_trim(self) -> None:
        trio = Trio(retention_bytes=0)
        trio.start()
        leader = trio.elect()
        leader.append(b"a")
        trio.run(600)
        leader.io.is_held = True
        leader.append(b"b")
        trio.run(100)
        leader.generate_snapshot()
        trio.run(1)
        start = leader.driver.facts.log_start_offset
        assert leader.log.log_start_offset < start
        trio.cut.add(leader.id)
        leader.append(b"lost")
        successor = trio.elect()
        successor.append(b"c")
        trio.cut.clear()
        trio.run(3_000)
        leader.io.release()
        trio.run(3_000)
        assert leader.log.log_start_offset == start
        assert leader.log.log_end_offset == successor.log.log_end_offset
        assert not leader.failures

    def test_granted_vote_waits_for_the_disk(self) -> None:
        trio = Trio()
        trio.start()
        leader = trio.elect()
        leader.io.is_held = True
        leader.append(b"x")
        trio.run(50)
        request = vote_request(leader.driver.facts.epoch + 1, position_of(leader), pre_vote=False)
        answer = leader.driver.handle(request)
        trio.run(500)
        assert not answer.done()
        leader.io.release()
        trio.run(1)
        response = answer.result()
        assert isinstance(response, VoteResponse)
        assert response.granted
        assert leader.driver.election is not None
        assert leader.driver.election.voted_id == 9

    def test_only_voter_commits_after_its_fsync(self) -> None:
        node = QuorumNode().start()
        node.settle()
        node.io.is_held = True
        known = node.quorum.high_watermark or 0
        for number in range(5):
            node.append(b"%d" % number)
            node.settle()
        assert node.quorum.high_watermark == known
        before = len(node.fs.log)
        node.io.release()
        node.settle()
        assert node.quorum.high_watermark == node.quorum.log_end_offset == known + 5
        synced = [path for operation, path in node.fs.log[before:] if operation == "sync"]
        assert len(synced) <= 2, "one fsync for the first record, one for all others"


class TestFollower:
    """A follower's disk is slow."""

    def test_follower_does_not_take_its_own_fsync_for_silence_of_the_leader(self) -> None:
        trio = Trio()
        trio.start()
        leader = trio.elect()
        epoch = leader.driver.leader.epoch
        followers = trio.others(leader)
        trio.kill(followers[1].id)
        slow = followers[0]
        slow.io.is_held = True
        leader.append(b"x")
        trio.run(2_800)  # longer than the fetch timeout, shorter than check-quorum
        assert slow.driver.facts.role == "follower"
        slow.io.release()
        trio.run(500)
        assert slow.driver.facts.role == "follower"
        assert leader.driver.leader.epoch == slow.driver.facts.epoch == epoch
        assert leader.listener.frames == [b"x"]

    def test_follower_detects_a_dead_leader_after_its_fsync(self) -> None:
        trio = Trio()
        trio.start()
        leader = trio.elect()
        followers = trio.others(leader)
        for follower in followers:
            follower.io.is_held = True
        leader.append(b"x")
        trio.run(100)
        trio.kill(leader.id)
        for follower in followers:
            follower.io.release()
        successor = trio.elect()
        assert successor.listener.frames == [b"x"]


def test_votes_are_answered_while_a_fetched_snapshot_is_checked() -> None:
    trio = Trio()
    trio.start(1, 2)
    leader = trio.elect()
    for number in range(20):
        leader.append(b"%d" % number)
        trio.run(50)
    leader.generate_snapshot()
    trio.start(3)
    late = trio.nodes[3]
    late.snapshot_io.is_held = True
    trio.run(2_000)
    assert late.snapshot_io.waiting == 1, "the check of the snapshot has begun"
    assert late.log.log_end_offset == 0
    request = vote_request(late.driver.facts.epoch + 1, position_of(leader), pre_vote=False)
    answer = late.driver.handle(request)
    trio.run(1)
    response = answer.result()
    assert isinstance(response, VoteResponse)
    assert response.granted
    late.snapshot_io.release()
    trio.elect()
    trio.run(3_000)
    assert late.log.log_end_offset == leader.log.log_end_offset


def test_pages_of_a_snapshot_do_not_delay_appends() -> None:
    trio = Trio()
    trio.start(1, 2)
    leader = trio.elect()
    leader.append(b"a")
    trio.run(600)
    leader.generate_snapshot()
    leader.snapshot_io.is_held = True
    trio.start(3)
    trio.run(500)
    assert leader.snapshot_io.waiting
    leader.append(b"b")
    trio.run(100)
    assert leader.listener.frames == [b"a", b"b"]
