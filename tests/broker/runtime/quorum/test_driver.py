"""Replicas on their drivers: durability before messages, notifications of listeners, and metrics."""

from typing import Any

import pytest

from broker.metrics.quorum import quorum_families
from broker.quorum.core import NotLeader
from broker.quorum.messages import (
    EndQuorumEpochRequest,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    Request,
    VoteRequest,
)
from broker.runtime.loop.append_slices import SLICE_BATCHES
from broker.runtime.quorum.state_file import QuorumStateFile
from protocol.errors import ErrorCode, KafkaError
from storage.errors import LogDirFailure
from storage.files import join
from tests.broker.runtime.quorum.quorum_node import CLUSTER_ID, DIRECTORY, RecordingListener
from tests.broker.runtime.quorum.quorum_trio import Trio, TrioNode
from tests.support.fakes.clock import ManualClock
from tests.support.fakes.memory_files import checked
from tests.support.quorum_values import make_fetch_request, make_snapshot_id, replica_key

ANONYMOUS = replica_key(-1)


def fetch(node: TrioNode, offset: int, *, max_wait_ms: int = 0) -> FetchRequest:
    """Return a fetch of a consumer."""
    epoch = node.driver.leader.epoch
    return make_fetch_request(CLUSTER_ID, ANONYMOUS, epoch, offset, epoch if offset else 0, max_wait_ms)


def sent_of(node: TrioNode, kind: type[Request]) -> list[Any]:
    return [request for _, request in node.sent if isinstance(request, kind)]


class TestReplication:
    def test_commits_are_delivered_on_every_node_in_the_same_order(self) -> None:
        trio = Trio()
        trio.start()
        leader = trio.elect()
        for number in range(5):
            leader.append(b"%d" % number, b"%d'" % number)
            trio.run(7)
        trio.run(600)
        batches = [(each.base_offset, each.epoch, list(map(bytes, each.frames))) for each in leader.listener.batches]
        for node in trio.alive:
            delivered = [
                (each.base_offset, each.epoch, list(map(bytes, each.frames))) for each in node.listener.batches
            ]
            assert delivered == batches
            assert node.driver.high_watermark == leader.driver.log_end_offset
            assert node.failures == []
        assert leader.listener.frames[-2:] == [b"4", b"4'"]

    def test_leader_failure_loses_no_committed_record(self) -> None:
        trio = Trio()
        trio.start()
        first = trio.elect()
        first.append(b"a")
        trio.run(600)
        trio.kill(first.id)
        second = trio.elect()
        assert second.driver.leader.epoch > first.listener.leaders[-1].epoch
        second.append(b"b")
        trio.start(first.id)
        trio.run(3_000)
        for node in trio.alive:
            assert node.listener.frames == [b"a", b"b"]

    def test_long_catch_up_is_appended_in_slices_and_delivered_whole(self) -> None:
        trio = Trio()
        trio.start(1, 2)
        leader = trio.elect()
        for number in range(1_000):
            leader.append(b"%d" % number)
        trio.run(1_000)
        trio.start(3)
        trio.run(5_000)
        third = trio.nodes[3]
        writes = [path for what, path in third.fs.log if what == "write" and path.endswith(".log")]
        assert len(writes) > 1_000 // SLICE_BATCHES
        assert third.listener.frames == leader.listener.frames

    def test_uncommitted_records_are_truncated_and_never_delivered(self) -> None:
        trio = Trio()
        trio.start()
        first = trio.elect()
        trio.cut.add(first.id)
        first.append(b"lost")
        trio.run(1)
        with_lost = first.log.log_end_offset
        second = trio.elect()
        second.append(b"kept")
        trio.run(1_000)
        trio.cut.clear()
        trio.run(5_000)
        assert first.listener.frames == [b"kept"]
        assert first.log.log_end_offset == second.log.log_end_offset
        assert with_lost > 3
        with pytest.raises(NotLeader):
            first.driver.append(first.listener.leaders[0].epoch, [b"x"])

    def test_leader_in_shutdown_is_replaced_without_a_timeout(self) -> None:
        trio = Trio()
        trio.start()
        leader = trio.elect()
        shutdown = leader.driver.shut_down()
        trio.run(500)
        assert shutdown.done()
        assert sent_of(leader, EndQuorumEpochRequest)
        assert trio.kill(leader.id).failures == []
        assert {node.driver.leader.leader_id for node in trio.alive} <= {node.id for node in trio.alive}

    def test_shutdown_ends_after_its_timeout(self) -> None:
        trio = Trio()
        trio.start()
        leader = trio.elect()
        for other in trio.others(leader):
            trio.kill(other.id)
        shutdown = leader.driver.shut_down(timeout_ms=700)
        assert leader.driver.shut_down() is shutdown
        trio.run(699)
        assert not shutdown.done()
        trio.run(2)
        assert shutdown.done()


class TestDurability:
    def test_vote_requests_leave_after_the_own_vote_is_on_disk(self) -> None:
        trio = Trio()
        trio.start()
        for node in trio.alive:
            node.io.is_held = True
        trio.run(10_000)
        votes = [request for node in trio.alive for request in sent_of(node, VoteRequest)]
        assert votes
        assert all(request.pre_vote for request in votes)
        for node in trio.alive:
            node.io.release()
        assert trio.elect()

    def test_follower_fetches_after_its_records_are_on_disk(self) -> None:
        trio = Trio()
        trio.start()
        leader = trio.elect()
        trio.run(600)
        follower, third = trio.others(leader)
        trio.kill(third.id)
        follower.io.is_held = True
        end = leader.append(b"a") + 1
        trio.run(100)
        assert follower.log.log_end_offset == end, "the record is in the page cache"
        assert max(request.fetch_offset for request in sent_of(follower, FetchRequest)) < end
        assert leader.listener.frames == [], "an unsynced record does not count"
        follower.io.release()
        trio.run(100)
        assert leader.listener.frames == [b"a"]

    def test_leader_counts_its_records_once_they_are_on_disk(self) -> None:
        trio = Trio()
        trio.start()
        leader = trio.elect()
        trio.run(600)
        for node in trio.others(leader)[1:]:
            trio.kill(node.id)
        leader.io.is_held = True
        leader.append(b"a")
        trio.run(100)
        assert leader.listener.frames == []
        leader.io.release()
        trio.run(600)
        assert leader.listener.frames == [b"a"]

    def test_disk_failure_stops_the_replica_once(self) -> None:
        trio = Trio()
        trio.start()
        leader = trio.elect()
        leader.fs.fail("sync", path_part=".log")
        leader.append(b"a")
        trio.run(100)
        assert [type(each) for each in leader.failures] == [LogDirFailure]
        sent_count = len(leader.sent)
        trio.run(10_000)
        assert (len(leader.failures), len(leader.sent)) == (1, sent_count)
        assert leader.listener.frames == []

    def test_failed_state_file_write_stops_the_replica(self) -> None:
        trio = Trio()
        trio.start(1, 2)
        trio.nodes[1].fs.fail("write", path_part="quorum-state")
        trio.run(20_000)
        assert [type(each) for each in trio.nodes[1].failures] == [OSError]
        assert not any(not request.pre_vote for request in sent_of(trio.nodes[1], VoteRequest))


class TestAnswers:
    def test_fetch_response_contains_records(self) -> None:
        trio = Trio()
        trio.start()
        leader = trio.elect()
        leader.append(b"value-1")
        trio.run(600)
        answer = leader.driver.handle(fetch(leader, 0))
        trio.run(10)
        response = answer.result()
        assert isinstance(response, FetchResponse)
        assert (response.error, response.high_watermark) == (ErrorCode.NONE, leader.driver.high_watermark)
        assert b"value-1" in bytes(response.records)

    def test_fetch_at_the_log_end_waits_for_records(self) -> None:
        trio = Trio()
        trio.start()
        leader = trio.elect()
        trio.run(600)
        waiting = leader.driver.handle(fetch(leader, leader.log.log_end_offset, max_wait_ms=10_000))
        trio.run(200)
        assert not waiting.done()
        leader.append(b"more")
        trio.run(50)
        response = waiting.result()
        assert isinstance(response, FetchResponse)
        assert b"more" in bytes(response.records)

    def test_response_to_a_cancelled_request_is_dropped(self) -> None:
        trio = Trio()
        trio.start()
        leader = trio.elect()
        leader.driver.handle(fetch(leader, leader.log.log_end_offset, max_wait_ms=10_000)).cancel()
        leader.append(b"more")
        trio.run(600)
        assert leader.failures == []

    def test_pending_requests_fail_when_the_replica_closes(self) -> None:
        trio = Trio()
        trio.start()
        leader = trio.elect()
        waiting = leader.driver.handle(fetch(leader, leader.log.log_end_offset, max_wait_ms=10_000))
        trio.kill(leader.id)
        late = leader.driver.handle(fetch(leader, 0))
        for answer in (waiting, late):
            with pytest.raises(KafkaError, match="BROKER_NOT_AVAILABLE"):
                answer.result()

    def test_page_of_a_deleted_snapshot_is_not_found(self) -> None:
        trio = Trio()
        trio.start()
        leader = trio.elect()
        trio.run(600)
        name = leader.generate_snapshot()
        end_offset, epoch = map(int, name.split("-"))
        checked(leader.fs).remove(join(DIRECTORY, f"{end_offset:020d}-{epoch:010d}.checkpoint"))
        request = FetchSnapshotRequest(
            CLUSTER_ID, ANONYMOUS, leader.driver.leader.epoch, make_snapshot_id(end_offset, epoch), 0
        )
        answer = leader.driver.handle(request)
        trio.run(10)
        response = answer.result()
        assert isinstance(response, FetchSnapshotResponse)
        assert response.error is ErrorCode.SNAPSHOT_NOT_FOUND

    def test_describe_requires_the_leader(self) -> None:
        trio = Trio()
        trio.start()
        leader = trio.elect()
        trio.run(600)
        found = leader.driver.describe()
        assert {each.key.id for each in found.voters} == {1, 2, 3}
        other = trio.others(leader)[0].driver.describe()
        assert (other.error, other.leader_id) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, leader.id)


class TestSnapshots:
    def test_late_replica_fetches_a_snapshot_and_continues(self) -> None:
        trio = Trio()
        trio.start(1, 2)
        leader = trio.elect()
        leader.append(b"in the snapshot")
        trio.run(600)
        name = leader.generate_snapshot()
        trio.start(3)
        trio.run(3_000)
        leader.append(b"after it")
        trio.run(600)
        third = trio.nodes[3]
        assert sent_of(third, FetchSnapshotRequest)
        assert third.listener.events[0] == f"leader {leader.id} in {leader.driver.leader.epoch}"
        assert third.listener.events[1] == f"snapshot {name}"
        assert third.listener.frames == [b"after it"]
        assert third.log.log_start_offset == int(name.split("-")[0])
        assert third.failures == []

    def test_late_listener_starts_at_the_snapshot(self) -> None:
        trio = Trio()
        trio.start()
        leader = trio.elect()
        leader.append(b"in the snapshot")
        trio.run(600)
        name = leader.generate_snapshot()
        leader.append(b"after it")
        trio.run(600)
        late = RecordingListener()
        leader.driver.add_listener(late)
        trio.run(1)
        assert late.events[0] == f"snapshot {name}"
        assert late.frames == [b"after it"]
        assert late.leaders == [leader.driver.leader]


class TestFigures:
    def test_appends_commits_and_elections_are_counted(self) -> None:
        trio = Trio()
        trio.start()
        leader = trio.elect()
        leader.append(b"a", b"b")
        leader.append(b"c")
        trio.run(600)
        metrics = leader.driver.metrics
        assert (metrics.appended_records, metrics.commit.count) == (3, 2)
        assert metrics.commit.take_max() >= 2
        assert metrics.commit.take_max() == 0
        assert metrics.election.count == 1
        follower = trio.others(leader)[0]
        assert follower.driver.metrics.fetched_records == follower.log.log_end_offset
        assert follower.driver.metrics.appended_records == 0

    def test_figures_show_the_replicas_state(self) -> None:
        trio = Trio()
        trio.start()
        leader = trio.elect()
        clock = ManualClock()
        quorum = quorum_families(leader.driver.figures, leader.driver.metrics, clock.monotonic_ms)
        families = {each.name: each for each in quorum}
        clock.advance_ms(2_000)
        leader.append(b"a")
        trio.run(600)

        def value(name: str) -> float:
            return next(iter(families[f"kafka_server_raftmetrics_{name}"].read())).value

        (state,) = families["kafka_server_raftmetrics"].read()
        assert (state.value, state.labels) == (1, {"current_state": "leader"})
        assert (value("current_leader"), value("current_vote")) == (leader.id, leader.id)
        assert value("current_epoch") == leader.driver.leader.epoch
        assert value("high_watermark") == value("log_end_offset") == leader.driver.high_watermark
        assert value("log_end_epoch") == leader.driver.leader.epoch
        assert (value("number_of_voters"), value("number_of_observers")) == (3, 0)
        assert (value("uncommitted_voter_change"), value("ignored_static_voters")) == (0, 0)
        assert (value("append_records_total"), value("commit_latency")) == (1, 1)
        assert value("append_records_rate") == 0.5
        assert 0 < value("poll_idle_ratio_avg") <= 1
        average = value("commit_latency_avg")
        assert average == value("commit_latency_max") > value("commit_latency_max") == 0
        other = trio.others(leader)[0].driver.figures()
        assert (other.state, other.leader_id, other.voters) == ("follower", leader.id, -1)

    def test_election_is_the_state_on_disk(self) -> None:
        trio = Trio()
        trio.start()
        leader = trio.elect()
        for node in trio.alive:
            assert node.driver.election == QuorumStateFile(checked(node.fs), DIRECTORY).read()
            assert node.driver.election is not None
            assert node.driver.election.leader_id == leader.id


def test_outcomes_after_close_are_ignored() -> None:
    trio = Trio()
    trio.start()
    leader = trio.elect()
    trio.run(600)
    assert trio.kill(leader.id).sent, "fetches of other nodes are delayed, and BeginQuorumEpoch requests are in flight"
    trio.run(5_000)
    assert leader.failures == []
