"""Random events in a quorum: the invariants of KRaft hold after every step, and all nodes agree in the end."""

import random
from collections.abc import Callable

import pytest

from broker.quorum.identity import KRaftVersions
from broker.quorum.membership.voters import VoterNode, VoterSet
from broker.quorum.messages import AddVoterRequest, RemoveVoterRequest, Request
from tests.support.harnesses.quorum_harness import CLUSTER, Limits, Node, QuorumHarness, directory, endpoint, listeners
from tests.support.quorum_values import make_control_record, replica_key

STEPS = 120


class Quorum:
    """Five nodes, three of them voters at first, and their observed state."""

    def __init__(self, seed: int, *, dynamic: bool) -> None:
        self.random = random.Random(seed)
        self.harness = QuorumHarness()
        self.harness.limits = Limits(trim_interval_ms=500, retention_bytes=0, fetch_snapshot_max_bytes=150)
        self.harness.latency = lambda: self.random.choice([0.5, 1, 1, 2, 5, 40])
        self.harness.loses = lambda: self.random.random() < 0.02
        self.epochs: dict[int, int] = {}
        self.leaders: dict[int, int] = {}
        self.committed: dict[int, bytes] = {}
        self.high_watermarks: dict[tuple[int, int], int] = {}
        self.appended = 0
        if dynamic:
            self._add_dynamic()
        else:
            self.harness.static([1, 2, 3])
        for node_id in (4, 5):
            first = self.harness.nodes[1].settings
            settings = self.harness.settings(
                node_id, bootstrap=tuple(map(endpoint, (1, 2, 3))), static_voters=first.static_voters
            )
            self.harness.add(settings)
        for node in self.harness.nodes.values():
            node.random = self.random
            node.start()

    def _add_dynamic(self) -> None:
        ids = (1, 2, 3)
        voters = VoterSet(
            VoterNode(replica_key(each, directory(each)), listeners(each), KRaftVersions()) for each in ids
        )
        formatted = (make_control_record(-1, 1, None), make_control_record(-1, None, voters.to_record()))
        for each in ids:
            self.harness.add(self.harness.settings(each, bootstrap=tuple(map(endpoint, ids))), formatted)

    # Random events

    def step(self) -> None:
        node = self.harness.nodes[self.random.randint(1, 5)]
        actions: list[tuple[int, Callable[[Node], None]]] = [
            (8, self.append),
            (8, lambda _: self.harness.advance(self.random.choice([1, 5, 30, 200]))),
            (4, lambda _: self.harness.advance(self.random.choice([1_000, 3_000]))),
            (2, self.stop_or_start),
            (1, lambda node: self.harness.isolate(node.id)),
            (1, self.cut),
            (3, lambda _: self.harness.heal()),
            (2, self.snapshot),
            (1, self.change_voters),
            (1, self.resign),
            (2, self.hold),
        ]
        weights = [weight for weight, _ in actions]
        self.random.choices([action for _, action in actions], weights)[0](node)
        self.check()

    def append(self, _node: Node) -> None:
        for node in self.up():
            if node.up.facts.role == "leader":
                self.appended += 1
                node.up.append(node.up.facts.epoch, [f"{node.id}-{self.appended}".encode()], self.harness.now)
                node.work()

    def stop_or_start(self, node: Node) -> None:
        if node.core is None:
            node.hold = False
            node.start()
        else:
            node.stop()

    def cut(self, node: Node) -> None:
        self.harness.cuts.add((node.id, self.random.randint(1, 5)))

    def hold(self, node: Node) -> None:
        node.hold = not node.hold
        node.work()

    def snapshot(self, node: Node) -> None:
        if node.core is None or node.hold or node.core.facts.high_watermark is None:
            return
        ends = [
            header.next_offset
            for header, _ in node.disk.batches
            if header.next_offset <= node.core.facts.high_watermark
        ]
        if ends:
            node.snapshot(self.random.choice(ends), f"snapshot of {node.id} ".encode() * 20)

    def resign(self, node: Node) -> None:
        if node.core is not None:
            node.core.resign(node.core.facts.epoch, self.harness.now)
            node.work()

    def change_voters(self, node: Node) -> None:
        leaders = [each for each in self.up() if each.up.facts.role == "leader"]
        if not leaders:
            return
        leader, key = self.random.choice(leaders), node.settings.key
        request: Request = AddVoterRequest(CLUSTER, key, listeners(node.id))
        if leader.up.facts.kraft_version == 0:
            self.harness.expect(0, lambda token: leader.up.upgrade_kraft_version(token, 1, self.harness.now))
        else:
            if key in leader.up.facts.voters.keys:
                request = RemoveVoterRequest(CLUSTER, key)
            self.harness.ask(leader, request, lambda _response: None)
        leader.work()

    def up(self) -> list[Node]:
        return [node for node in self.harness.nodes.values() if node.core is not None]

    # Invariants

    def check(self) -> None:
        for node in self.up():
            self.check_epoch(node)
            self.check_committed(node)
            self.check_start(node)

    def check_epoch(self, node: Node) -> None:
        epoch = node.up.facts.epoch
        assert epoch >= self.epochs.get(node.id, 0), f"the epoch of {node.id} fell"
        state = node.disk.election
        self.epochs[node.id] = state.epoch if state is not None else 0
        if node.up.facts.role == "leader":
            assert self.leaders.setdefault(epoch, node.id) == node.id, f"two leaders in epoch {epoch}"

    def check_committed(self, node: Node) -> None:
        """Check that committed records are equal on all nodes, byte by byte."""
        high_watermark = node.up.facts.high_watermark
        process = (node.id, node.incarnation)
        assert (high_watermark or 0) >= self.high_watermarks.get(process, 0), f"the high watermark of {node.id} fell"
        self.high_watermarks[process] = high_watermark or 0
        if node.hold:
            return
        for header, data in node.disk.batches:
            if header.next_offset <= (high_watermark or 0):
                known = self.committed.setdefault(header.base_offset, data)
                assert known == data, f"offset {header.base_offset} on {node.id} is not what was committed"

    def check_start(self, node: Node) -> None:
        disk = node.disk
        if disk.start > 0:
            assert min(key.end_offset for key in disk.snapshots) == disk.start, "the log starts at a snapshot"

    def end_trouble(self) -> None:
        self.harness.heal()
        self.harness.loses = lambda: False
        for node in self.harness.nodes.values():
            node.hold = False
            if node.core is None:
                node.start()
            node.work()
        self.harness.advance(40_000)
        self.append(self.harness.nodes[1])
        self.harness.advance(2_000)
        self.check()


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("seed", range(25))
def test_random_quorums_keep_their_invariants(seed: int, dynamic: bool) -> None:
    quorum = Quorum(seed, dynamic=dynamic)
    for _ in range(STEPS):
        quorum.step()
    quorum.end_trouble()
    leader = quorum.harness.leader()
    for node in quorum.harness.nodes.values():
        assert node.up.facts.epoch == leader.up.facts.epoch
        assert node.up.facts.high_watermark == node.up.facts.log_end_offset == leader.up.facts.log_end_offset, (
            f"{node.id} lags"
        )
    for offset, data in quorum.committed.items():
        held = [batch for header, batch in leader.disk.batches if header.base_offset == offset]
        assert held == [data] or offset < leader.disk.start, f"what was committed at {offset} is lost"
