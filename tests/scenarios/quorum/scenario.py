"""Scenarios of the replicas of a KRaft quorum: messages, persisted state, elections, and snapshots.

Each line of output starts with the time in milliseconds since the command. A message takes 1 ms. Node n draws n · 100
wherever it draws a random number, so node 1 is the first candidate. `4.2` is node 4 with its second directory id.
Successful fetches are not shown; appends and commits show their effect.

    voters 1 2 3                static voters, at kraft.version 0
    quorum 1 2 3                formatted voters: kraft.version 1, voters in the 0-0 snapshot
    node 4 [auto-join] [broker] [kraft=0-0]     a node that is not a voter
    start 1 …                   stop 1 …                    wipe 1 …      (while stopped: an empty disk with a new id)
    kill 1 …                    stop the process; its host refuses connections
    advance 1500                advance the clock; the prefix `quiet` hides the output of any command
    append x y                  append on the leader; [by=2] if there are several leaders
    resign 1                    shut-down 1                 controlled shutdown
    cut 1-2 1>3                 lose messages both ways, or one way
    isolate 1                   heal
    draw 2 100                  set the random number of node 2
    latency 800                 set the time in ms that a message takes
    old 1                       node 1 does not support pre-votes (no KIP-996)
    limits trim-interval-ms=10 …    settings, in the first block
    add 4 [ack=append]          remove 1.1                  upgrade 1     (to a kraft.version)
    move 2                      (while stopped) change the node's listener
    misname 1                   (while stopped) advertise a wrong address
    snapshot 1 at=5             generate a snapshot
    offer 5-1 [holds=bad]       put a snapshot into the store; nodes with the limit import-timeout-ms import from it
    store 20                    set the response time of the store in ms
    log 1                       show the content of the disk
    status                      show roles, offsets and voters
    vote 1 as=9 epoch=5 …       begin 1 as=9 epoch=5        end 1 as=9 epoch=5      requests of an unknown node
    fetch 1 as=9 epoch=5 offset=0 last=0
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

from broker.quorum.appends import NotLeader
from broker.quorum.identity import KRaftVersions, ReplicaKey, SocketAddress
from broker.quorum.membership.voters import VoterNode, VoterSet
from broker.quorum.messages import (
    AddVoterRequest,
    RemoveVoterRequest,
    Request,
    Response,
)
from tests.scenarios.transcript import Command, Named, Scenario, Words
from tests.support.harnesses.quorum_harness import (
    CLUSTER,
    FixedRandom,
    Limits,
    Node,
    QuorumHarness,
    directory,
    endpoint,
    listeners,
)
from tests.support.harnesses.quorum_transcript import describe_batches, describe_response, describe_voters
from tests.support.quorum_values import (
    log_position,
    make_begin_request,
    make_control_record,
    make_end_request,
    make_fetch_request,
    make_snapshot_id,
    make_vote_request,
    replica_key,
)


class QuorumScenario(Scenario):
    """Interpreter of the commands above."""

    def __init__(self) -> None:
        super().__init__()
        self.harness = QuorumHarness(self.say)
        self.said: set[str] = set()
        self.begun_at = 0.0
        self.commands: Mapping[str, Command] = {
            "voters": lambda words, _: self.harness.static([int(word) for word in words]),
            "quorum": self.quorum,
            "node": self.node,
            "start": self.start,
            "stop": lambda words, _: self.each(words, Node.stop),
            "kill": lambda words, _: self.each(words, Node.kill),
            "wipe": lambda words, _: self.each(words, lambda node: self.harness.wipe(node.id)),
            "advance": lambda words, _: self.harness.advance(float(words[0])),
            "append": self.append,
            "resign": self.resign,
            "shut-down": self.shut_down,
            "cut": self.cut,
            "isolate": lambda words, _: self.each(words, lambda node: self.harness.isolate(node.id)),
            "heal": lambda _words, _named: self.harness.heal(),
            "old": lambda words, _: self.harness.refuses_pre_vote.update(map(int, words)),
            "latency": self.latency,
            "draw": self.draw,
            "limits": self.limits,
            "add": self.add,
            "remove": self.remove,
            "upgrade": self.upgrade,
            "move": lambda words, _: self.each(words, self.move),
            "misname": lambda words, _: self.each(words, self.misname),
            "snapshot": self.snapshot,
            "offer": self.offer,
            "store": self.store,
            "log": self.log,
            "status": self.status,
            "vote": self.vote,
            "begin": self.begin,
            "end": self.end,
            "fetch": self.fetch,
        }

    def before_command(self) -> None:
        self.said, self.begun_at = set(), self.harness.now.monotonic_ms

    def say(self, line: str) -> None:
        """Show an event with its time; a repeated message of one command is shown once."""
        if " -> " in line and line in self.said:
            return
        self.said.add(line)
        self.show(f"{self.harness.now.monotonic_ms - self.begun_at:>5.0f} {line}")

    def each(self, words: Words, action: Callable[[Node], None]) -> None:
        for word in words:
            action(self.harness.nodes[int(word)])

    # Nodes

    def quorum(self, words: Words, _named: Named) -> None:
        ids = [int(word) for word in words]
        voters = VoterSet(
            VoterNode(replica_key(each, directory(each)), listeners(each), KRaftVersions()) for each in ids
        )
        formatted = (make_control_record(-1, 1, None), make_control_record(-1, None, voters.to_record()))
        for each in ids:
            self.harness.add(self.harness.settings(each, bootstrap=self.servers(ids)), formatted)

    def servers(self, ids: list[int]) -> tuple[SocketAddress, ...]:
        return tuple(endpoint(each) for each in ids)

    def node(self, words: Words, named: Named) -> None:
        servers = self.servers([each for each in self.harness.nodes if each <= 3])
        minimum, maximum = map(int, named.get("kraft", "0-1").split("-"))
        settings = self.harness.settings(
            int(words[0]),
            bootstrap=servers,
            static_voters=next(iter(self.harness.nodes.values())).settings.static_voters,
            auto_join="auto-join" in words,
            can_vote="broker" not in words,
            versions=KRaftVersions(minimum, maximum),
        )
        self.harness.add(settings)

    def start(self, words: Words, _named: Named) -> None:
        self.each(words, Node.start)

    def move(self, node: Node) -> None:
        old = node.settings.listeners[0]
        self.misname(node)
        del self.harness.by_endpoint[old.endpoint]
        self.harness.by_endpoint[node.settings.listeners[0].endpoint] = node.id

    def misname(self, node: Node) -> None:
        old = node.settings.listeners[0]
        node.settings = replace(node.settings, listeners=(old._replace(port=old.port + 100),))

    def resign(self, words: Words, _named: Named) -> None:
        for node in (self.harness.nodes[int(word)] for word in words):
            node.up.resign(node.up.facts.epoch, self.harness.now)
            node.work()

    def shut_down(self, words: Words, _named: Named) -> None:
        for node in (self.harness.nodes[int(word)] for word in words):
            node.up.shut_down(self.harness.now)
            node.work()

    def cut(self, words: Words, _named: Named) -> None:
        for word in words:
            first, second = map(int, word.replace(">", "-").split("-"))
            self.harness.cuts.add((first, second))
            if "-" in word:
                self.harness.cuts.add((second, first))

    # Clients

    def append(self, words: Words, named: Named) -> None:
        node = self.harness.nodes[int(named["by"])] if "by" in named else self.harness.leader()
        try:
            node.up.append(node.up.facts.epoch, [word.encode() for word in words], self.harness.now)
        except NotLeader as error:
            self.show(f"refused: {error}")
        node.work()

    def limits(self, _words: Words, named: Named) -> None:
        self.harness.limits = Limits(**{name.replace("-", "_"): int(value) for name, value in named.items()})

    def draw(self, words: Words, _named: Named) -> None:
        random = self.harness.nodes[int(words[0])].random
        assert isinstance(random, FixedRandom)
        random.number = int(words[1])

    def latency(self, words: Words, _named: Named) -> None:
        ms = float(words[0])
        self.harness.latency = lambda: ms

    def add(self, words: Words, named: Named) -> None:
        node = self.harness.nodes[int(words[0])]
        waits = named.get("ack") != "append"
        self.ask_leader(AddVoterRequest(CLUSTER, node.settings.key, node.settings.listeners, waits))

    def remove(self, words: Words, _named: Named) -> None:
        node_id, _, disk = words[0].partition(".")
        self.ask_leader(RemoveVoterRequest(CLUSTER, replica_key(int(node_id), directory(int(node_id), int(disk or 1)))))

    def upgrade(self, words: Words, _named: Named) -> None:
        node = self.harness.leader()
        self.harness.expect(0, lambda token: node.up.upgrade_kraft_version(token, int(words[0]), self.harness.now))
        node.work()

    def ask_leader(self, request: Request) -> None:
        self.harness.ask(self.harness.leader(), request, lambda _response: None)

    def snapshot(self, words: Words, named: Named) -> None:
        made = self.harness.nodes[int(words[0])].snapshot(
            int(named["at"]), (named.get("holds", "content") + " ").encode() * 32
        )
        self.show("refused" if made is None else f"snapshot {made.end_offset}-{made.epoch}")

    def offer(self, words: Words, named: Named) -> None:
        offset, epoch = map(int, words[0].split("-"))
        self.harness.offer(make_snapshot_id(offset, epoch), (named.get("holds", "content") + " ").encode() * 32)

    def store(self, words: Words, _named: Named) -> None:
        self.harness.store_ms = float(words[0])

    # Requests of unknown nodes

    def vote(self, words: Words, named: Named) -> None:
        last = log_position(int(named.get("last", "0")), int(named.get("end", "0")))
        voter = _key(named["to"]) if "to" in named else None
        request = make_vote_request(CLUSTER, int(named["epoch"]), _key(named["as"]), voter, last, "tentative" in words)
        self.intrude(words[0], request)

    def begin(self, words: Words, named: Named) -> None:
        sender, voter = int(named["as"]), _key(named["to"]) if "to" in named else None
        self.intrude(words[0], make_begin_request(CLUSTER, sender, int(named["epoch"]), voter, listeners(sender)))

    def end(self, words: Words, named: Named) -> None:
        sender = int(named["as"])
        self.intrude(words[0], make_end_request(CLUSTER, sender, int(named["epoch"]), (), listeners(sender)))

    def fetch(self, words: Words, named: Named) -> None:
        sender, epoch = _key(named["as"]), int(named["epoch"])
        cluster = named.get("cluster", CLUSTER)
        self.intrude(words[0], make_fetch_request(cluster, sender, epoch, int(named["offset"]), int(named["last"])))

    def intrude(self, word: str, request: Request) -> None:
        def done(response: Response) -> None:
            if describe_response(request, response) is None:
                self.show("answered")

        self.harness.ask(self.harness.nodes[int(word)], request, done)

    # Inspection

    def log(self, words: Words, _named: Named) -> None:
        disk = self.harness.nodes[int(words[0])].disk
        state = disk.election
        for snapshot_id in disk.snapshots:
            self.show(f"snapshot {snapshot_id.end_offset}-{snapshot_id.epoch}")
        for _header, data in disk.batches:
            self.show(describe_batches(data))
        if state is not None:
            voted = f"voted for {state.voted_id}" if state.voted_id >= 0 else "not voted"
            leader = f"leader {state.leader_id}" if state.leader_id >= 0 else "no leader"
            self.show(f"quorum-state version {state.version}: epoch {state.epoch}, {leader}, {voted}")

    def status(self, _words: Words, _named: Named) -> None:
        for node in self.harness.nodes.values():
            if node.core is None:
                self.show(f"{node.id} is down")
                continue
            core = node.core
            committed = "unknown" if core.facts.high_watermark is None else str(core.facts.high_watermark)
            offsets = f"log {core.facts.log_start_offset} to {core.facts.log_end_offset}, high watermark {committed}"
            voters = f"kraft.version {core.facts.kraft_version}, voters {describe_voters(core.facts.voters)}"
            left = ", may stop" if core.is_shut_down else ""
            self.show(f"{node.id} {core.facts.role} in epoch {core.facts.epoch}, {offsets}, {voters}{left}")


def _key(word: str) -> ReplicaKey:
    node_id, _, disk = word.partition(".")
    return replica_key(int(node_id), directory(int(node_id), int(disk or 1)))
