"""Scenarios of consumers and their group coordinator.

The output lists responses in the order in which they are sent, and records that reach the log.

Each client has a name of one or more letters. A client remembers its member id and generation, and rejoins at once when
the coordinator requires a member id, as real clients do, unless `id` is given.

    join a [instance=i] [protocols=range:t+u,sticky:t] [session=10s] [rebalance=60s] [version=9] [id=X|none] [type=T]
    sync a [assign=a:t0+t1,b:t2] [generation=1]
    heartbeat a [generation=1] [id=X [instance=i]]
    leave a b …                       leave instance=i
    commit a t-0=5 u-1=7 [generation=1] [metadata=M]       (a client that never joined has no member id)
    fetch [t-0 t-1] [stable]          all offsets when none are named
    delete-group                      delete-offsets t-0 …             topic-deleted t
    list [state=S] [type=T]           describe
    advance 3s                        let time pass
    log hold | log commit | log fail CODE
    producer 7 writes t-0=5           producer 7 commits | aborts      records of a transaction, as a log may hold them
    restart                           unload, and load again from the log
    config key=value …                in the first block only
"""

import asyncio
from collections.abc import Mapping

from broker.groups.config import GroupConfig
from broker.groups.records import (
    CommittedOffset,
    GroupRemoved,
    GroupWritten,
    OffsetCommitted,
    OffsetKey,
    OffsetRemoved,
    decode_record,
    offset_committed,
)
from broker.runtime.coordinators.shard_log import LoadedRecord
from protocol.errors import ErrorCode, KafkaError
from protocol.ids import LeaderEpoch
from protocol.messages.join_group import JoinGroupResponse
from protocol.messages.leave_group import MemberIdentity
from protocol.messages.offset_commit import OffsetCommitResponse
from protocol.messages.sync_group import SyncGroupResponse
from tests.scenarios.transcript import Command, Named, Scenario, Words
from tests.support.harnesses.group_harness import GROUP, GroupHarness, ReplyBox, subscription


class GroupScenario(Scenario):
    """Interpreter of the commands above."""

    def __init__(self) -> None:
        super().__init__()
        self.harness = GroupHarness(GroupConfig(group_coordinator_append_linger_ms=0))
        self.waiting: list[tuple[str, ReplyBox]] = []
        self.committing: list[tuple[str, asyncio.Future[OffsetCommitResponse]]] = []
        self.logged = 0
        self.commands: Mapping[str, Command] = {
            "config": self.config,
            "join": self.join,
            "sync": self.sync,
            "heartbeat": self.heartbeat,
            "leave": self.leave,
            "commit": self.commit,
            "fetch": self.fetch,
            "delete-group": self.delete_group,
            "delete-offsets": self.delete_offsets,
            "topic-deleted": self.topic_deleted,
            "list": self.list_groups,
            "describe": self.describe,
            "advance": self.advance,
            "log": self.log,
            "producer": self.producer,
            "restart": self.restart,
        }

    def is_named(self, word: str) -> bool:
        return "=" in word and not _is_offset(word)

    def execute(self, command: Command, words: Words, named: Named) -> None:
        try:
            command(words, named)
        except KafkaError as error:
            self.show(f"refused: {error.code.name}")

    def after_command(self, name: str) -> None:
        self.collect()

    def config(self, _words: Words, named: Named) -> None:
        """Replace the coordinator by one with these settings."""
        settings = {key.replace(".", "_"): int(value) for key, value in named.items()}
        self.harness = GroupHarness(GroupConfig(**{"group_coordinator_append_linger_ms": 0, **settings}))

    def collect(self) -> None:
        """Show the records appended and the responses sent since the last call."""
        self.harness.loop.run_soon()
        for record in self.harness.log.records[self.logged :]:
            self.show(f"log: {_show_record(record)}")
        self.logged = len(self.harness.log.records)
        for entry in list(self.waiting):
            name, box = entry
            if box.answer is not None:
                self.waiting.remove(entry)
                self.show(f"{name} <- {self.show_answer(box)}")
        for pending in list(self.committing):
            name, future = pending
            if future.done():
                self.committing.remove(pending)
                error = future.exception()
                self.show(
                    f"{name} <- commit {error.code.name if isinstance(error, KafkaError) else _codes(future.result())}"
                )

    # Members.

    def join(self, words: Words, named: Named) -> None:
        (name,) = words
        client = self.harness.client(name)
        if "instance" in named:
            client.instance_id = named["instance"]
        if "protocols" in named:
            client.protocols = _protocols(named["protocols"])
        if "id" in named:
            client.member_id = "" if named["id"] == "none" else named["id"]
        box = self.harness.join(
            name,
            version=int(named.get("version", "9")),
            session_ms=_milliseconds(named.get("session", "10s")),
            rebalance_ms=_milliseconds(named.get("rebalance", "60s")),
            protocol_type=named.get("type", "consumer"),
            follow_up="id" not in named,
        )
        self.waiting.append((name, box))

    def sync(self, words: Words, named: Named) -> None:
        (name,) = words
        pairs = [pair.split(":") for pair in named.get("assign", "").split(",") if pair]
        generation = int(named["generation"]) if "generation" in named else None
        box = self.harness.sync(name, {who: what.encode() for who, what in pairs}, generation=generation)
        self.waiting.append((name, box))

    def heartbeat(self, words: Words, named: Named) -> None:
        (name,) = words
        if "id" in named:
            self.harness.client(name, member_id=named["id"], instance_id=named.get("instance"))
        generation = int(named["generation"]) if "generation" in named else None
        self.show(f"{name} <- heartbeat {self.harness.heartbeat(name, generation=generation).name}")

    def leave(self, words: Words, named: Named) -> None:
        if "instance" in named:
            leavers = [MemberIdentity("", named["instance"])]
            response = self.harness.execute(lambda shard: shard.leave_group(GROUP, leavers), soft=True)
        else:
            response = self.harness.leave(*words)
        for member in response.members:
            who = member.member_id or f"instance {member.group_instance_id}"
            self.show(f"{who} leaves: {ErrorCode(member.error_code).name}")

    # Offsets.

    def commit(self, words: Words, named: Named) -> None:
        name, *offsets = words
        who = name if name in self.harness.clients else None
        generation = int(named["generation"]) if "generation" in named else None
        request = self.harness.commit_request(
            who, _offsets(offsets), generation=generation, metadata=named.get("metadata", "")
        )
        answer = self.harness.start(lambda shard: shard.commit_offsets(request, 9), soft=True)
        if isinstance(answer, asyncio.Future):
            self.committing.append((name, answer))
        else:
            self.collect()
            self.show(f"{name} <- commit {_codes(answer)}")

    def fetch(self, words: Words, named: Named) -> None:
        partitions = [_partition(word) for word in words if word != "stable"]
        fetched = self.harness.fetch(partitions or None, stable="stable" in words)
        for (topic, partition), value in sorted(fetched.items()):
            self.show(f"{topic}-{partition} {value.name if isinstance(value, ErrorCode) else value}")

    def delete_offsets(self, words: Words, named: Named) -> None:
        response = self.harness.delete_offsets([_partition(word) for word in words])
        for topic in response.topics:
            for each in topic.partitions:
                self.show(f"{topic.name}-{each.partition_index} {ErrorCode(each.error_code).name}")

    def topic_deleted(self, words: Words, named: Named) -> None:
        self.harness.hosted.post(lambda shard: shard.on_topics_deleted(set(words)))

    def producer(self, words: Words, named: Named) -> None:
        producer_id, verb, *offsets = words
        if verb == "writes":
            records = [
                offset_committed(OffsetKey(GROUP, *partition), CommittedOffset(offset, LeaderEpoch(-1), "", 0))
                for partition, offset in _offsets(offsets).items()
            ]
            self.harness.log.add([(record.key, record.value) for record in records], producer_id=int(producer_id))
        else:
            self.harness.log.add(producer_id=int(producer_id), committed=verb == "commits")
        self.restart([], {})

    # Groups.

    def delete_group(self, words: Words, named: Named) -> None:
        self.show(ErrorCode(self.harness.delete_group().error_code).name)

    def list_groups(self, words: Words, named: Named) -> None:
        states = [named["state"]] if "state" in named else []
        types = [named["type"]] if "type" in named else []
        for group in self.harness.list_groups(states, types):
            self.show(
                f"{group.group_id}: {group.group_state}, {group.group_type}, protocol type {group.protocol_type!r}"
            )

    def describe(self, words: Words, named: Named) -> None:
        described = self.harness.describe()
        self.show(f"{described.group_state}, protocol {described.protocol_data!r}")
        for member in described.members:
            instance = f" instance {member.group_instance_id}" if member.group_instance_id else ""
            self.show(f"  {member.member_id}{instance} has {member.member_assignment.decode()!r}")

    # Time, log and failover.

    def advance(self, words: Words, named: Named) -> None:
        """Advance in small steps, so that output is shown in the order of time."""
        (duration,) = words
        end = self.harness.loop.time() + _milliseconds(duration) / 1000
        while self.harness.loop.time() < end:
            self.harness.advance(min(1.0, end - self.harness.loop.time()))
            self.collect()

    def log(self, words: Words, named: Named) -> None:
        match words:
            case ["hold"]:
                self.harness.log.holds_commits = True
            case ["commit"]:
                self.harness.log.holds_commits = False
                self.harness.log.commit()
            case ["fail", code]:
                self.harness.log.fail_next = ErrorCode[code]
            case _:
                raise ValueError(f"log {words}")

    def restart(self, words: Words, named: Named) -> None:
        self.harness.restart()

    def show_answer(self, box: ReplyBox) -> str:
        answer = box.answer
        if isinstance(answer, SyncGroupResponse):
            return f"sync {box.error.name}" if answer.error_code else f"sync has {answer.assignment.decode()!r}"
        assert isinstance(answer, JoinGroupResponse)
        if answer.error_code:
            return f"join {box.error.name}" + (f" id {answer.member_id}" if answer.member_id else "")
        members = ", ".join(member.member_id for member in answer.members)
        return (
            f"join generation {answer.generation_id} {answer.protocol_name} as {answer.member_id}"
            f", leader {answer.leader}"
            + (f", members {members}" if members else "")
            + (", skip the assignment" if answer.skip_assignment else "")
        )


def _show_record(record: LoadedRecord) -> str:
    match decode_record(record.key, record.value):
        case OffsetCommitted(key, value):
            return f"{key.topic}-{key.partition} at {value.offset}"
        case OffsetRemoved(key):
            return f"{key.topic}-{key.partition} removed"
        case GroupWritten(group_id, value):
            members = ", ".join(f"{each.member_id} has {each.assignment.decode()!r}" for each in value.members)
            return f"group {group_id} generation {value.generation}" + (f", {members}" if members else ", no members")
        case GroupRemoved(group_id):
            return f"group {group_id} removed"
        case _:
            return "something else"


def _codes(response: OffsetCommitResponse) -> str:
    codes = {ErrorCode(each.error_code).name for topic in response.topics for each in topic.partitions}
    return " ".join(sorted(codes))


def _is_offset(word: str) -> bool:
    return "-" in word.split("=")[0] and word.split("=")[0].rpartition("-")[2].isdigit()


def _partition(text: str) -> tuple[str, int]:
    topic, _, partition = text.rpartition("-")
    return topic, int(partition)


def _offsets(words: list[str]) -> dict[tuple[str, int], int]:
    pairs = (word.split("=") for word in words)
    return {_partition(partition): int(offset) for partition, offset in pairs}


def _protocols(text: str) -> dict[str, bytes]:
    pairs = (entry.partition(":") for entry in text.split(","))
    return {name: subscription(*topics.split("+")) if topics else b"" for name, _, topics in pairs}


def _milliseconds(text: str) -> int:
    units = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
    unit = text.lstrip("0123456789")
    return int(text[: -len(unit)]) * units[unit]
