"""Scenarios of consumers with `group.protocol=consumer` and their coordinator.

The output lists records that reach the log, then responses. Each client has a name of one or more letters, which is its
member id. Clients give up revoked partitions at once, unless `keeps` is given.

    beat a [instance=i] [topics=t+u] [regex=t.*] [assignor=range] [rebalance=60s] [epoch=3] [keeps]
    leave a [epoch=-2]
    topic t 8                         create the topic or add partitions; 0 deletes it
    resolve t=topic+topic             answer the look-ups due: the topics of expressions that begin with t
    commit a t-0=5 [epoch=1] [version=9]
    join c [topics=t+u] [owned=t0+t1] [instance=i]      classic members, whose ids the coordinator chooses
    sync c [assign=c:t0+t1,d:t2]      heartbeat c       quit c …
    describe                          list [state=S] [type=T]           delete-group
    advance 3s                        restart
"""

from collections.abc import Mapping

from broker.groups.consumer import records as events
from broker.groups.consumer.assignment import Assignment, assignment_from
from broker.groups.consumer.embedded_protocol import assignment_bytes, embedded_assignment
from broker.groups.member import SupportedProtocol
from broker.groups.records import GroupRemoved, GroupWritten, OffsetCommitted, OffsetRemoved, decode_record
from broker.runtime.coordinators.shard_log import LoadedRecord
from protocol.compiler import encode_bytes
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.common_records import ConsumerProtocolSubscription, ConsumerProtocolSubscriptionTopicPartition
from protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
from protocol.messages.join_group import JoinGroupResponse
from protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from protocol.messages.sync_group import SyncGroupResponse
from tests.scenarios.transcript import Command, Named, Scenario, Words
from tests.support.harnesses.consumer_group_harness import ConsumerGroupHarness, FakeTopics, partition_names
from tests.support.harnesses.group_harness import GROUP, ReplyBox


class ConsumerGroupScenario(Scenario):
    """Interpreter of the commands above."""

    def __init__(self) -> None:
        super().__init__()
        self.harness = ConsumerGroupHarness()
        self.logged = 0
        self.waiting: list[tuple[str, ReplyBox]] = []
        self.commands: Mapping[str, Command] = {
            "beat": self.beat,
            "leave": self.leave,
            "topic": self.topic,
            "resolve": self.resolve,
            "commit": self.commit,
            "join": self.join,
            "sync": self.sync,
            "heartbeat": self.heartbeat,
            "quit": self.quit,
            "describe": self.describe,
            "list": self.list_groups,
            "delete-group": self.delete_group,
            "advance": self.advance,
            "restart": self.restart,
        }

    def is_named(self, word: str) -> bool:
        return "=" in word and "-" not in word.split("=")[0]

    def execute(self, command: Command, words: Words, named: Named) -> None:
        try:
            command(words, named)
        except KafkaError as error:
            self.after_command("")
            self.show(f"{words[0] if words else ''} <- {error.code.name}")

    def after_command(self, name: str) -> None:
        self.harness.loop.run_soon()
        for record in self.harness.log.records[self.logged :]:
            self.show(f"log: {_show_record(record)}")
        self.logged = len(self.harness.log.records)
        for entry in [each for each in self.waiting if each[1].answer is not None]:
            self.waiting.remove(entry)
            self.show(f"{entry[0]} <- {self._show_classic(entry[1])}")

    # Classic members.

    def join(self, words: Words, named: Named) -> None:
        (name,) = words
        topics = tuple(named.get("topics", "t").split("+"))
        owned = [ConsumerProtocolSubscriptionTopicPartition(each[0], [int(each[1:])]) for each in _list(named, "owned")]
        message = ConsumerProtocolSubscription(topics=list(topics), owned_partitions=owned)
        self.harness.client(name, protocols={"range": (3).to_bytes(2, "big") + encode_bytes(message, 3)})
        if "instance" in named:
            self.harness.client(name, instance_id=named["instance"])
        self.waiting.append((name, self.harness.join(name)))

    def sync(self, words: Words, named: Named) -> None:
        (name,) = words
        topics = self.harness.topics
        assignments = {
            member: assignment_bytes(_assignment(topics, parts), SupportedProtocol("range", bytes(2)), topics)
            for member, _, parts in (each.partition(":") for each in named.get("assign", "").split(",") if each)
        }
        self.waiting.append((name, self.harness.sync(name, assignments)))

    def heartbeat(self, words: Words, _named: Named) -> None:
        (name,) = words
        self.show(f"{name} <- heartbeat {self.harness.heartbeat(name).name}")

    def quit(self, words: Words, _named: Named) -> None:
        response = self.harness.leave(*words)
        self.after_command("")
        for name, member in zip(words, response.members, strict=True):
            self.harness.client(name, member_id="")
            self.show(f"{name} leaves: {ErrorCode(member.error_code).name}")

    def _show_classic(self, box: ReplyBox) -> str:
        answer = box.answer
        if isinstance(answer, SyncGroupResponse):
            has = _names(embedded_assignment(bytes(answer.assignment), self.harness.topics))
            return f"sync {box.error.name}" if answer.error_code else f"sync has {has}"
        assert isinstance(answer, JoinGroupResponse)
        if answer.error_code:
            return f"join {box.error.name}"
        return f"join generation {answer.generation_id} {answer.protocol_name} as {answer.member_id}"

    # Consumers.

    def beat(self, words: Words, named: Named) -> None:
        name = words[0]
        settings: dict[str, object] = {}
        if "instance" in named:
            self.harness.consumer(name, instance_id=named["instance"])
        if "epoch" in named:
            self.harness.consumer(name, epoch=int(named["epoch"]))
        if "topics" in named:
            settings |= {"topics": tuple(filter(None, named["topics"].split("+"))), "regex": ""}
        if "regex" in named:
            settings |= {"regex": named["regex"], "topics": None}
        if "assignor" in named:
            settings["assignor"] = named["assignor"]
        if "rebalance" in named:
            settings["rebalance_timeout_ms"] = int(named["rebalance"].removesuffix("s")) * 1000
        response = self.harness.beat(name, keeps="keeps" in words, **settings)
        self.after_command("")
        self.show(f"{name} <- {self._show_response(name, response)}")

    def leave(self, words: Words, named: Named) -> None:
        (name,) = words
        response = self.harness.leave_group_of(name, int(named.get("epoch", "-1")))
        self.after_command("")
        self.show(f"{name} <- epoch {response.member_epoch}")

    def topic(self, words: Words, named: Named) -> None:
        name, count = words
        self.harness.change_topic(name, int(count))

    def resolve(self, words: Words, named: Named) -> None:
        looked_up = self.harness.resolve(**{letter: topics.split("+") for letter, topics in named.items()})
        self.show(f"looked up: {', '.join(looked_up) or 'none'}")

    def commit(self, words: Words, named: Named) -> None:
        name, offset = words
        partition, _, value = offset.partition("=")
        topic, _, index = partition.rpartition("-")
        epoch = int(named["epoch"]) if "epoch" in named else self.harness.consumer(name).epoch
        request = OffsetCommitRequest(
            group_id=GROUP,
            member_id="" if epoch < 0 else name,
            generation_id_or_member_epoch=epoch,
            topics=[
                OffsetCommitRequestTopic(
                    name=topic, partitions=[OffsetCommitRequestPartition(int(index), int(value), 0, "")]
                )
            ],
        )
        version = int(named.get("version", "9"))
        self.harness.execute(lambda shard: shard.commit_offsets(request, version), soft=True)
        self.after_command("")
        self.show(f"{name} <- committed")

    def describe(self, _words: Words, _named: Named) -> None:
        group = self.harness.execute(lambda shard: shard.consumer_groups.describe(GROUP))
        if group.error_code:
            self.show(f"{ErrorCode(group.error_code).name}: {group.error_message}")
            return
        self.show(f"{group.group_state}, epoch {group.group_epoch}, target {group.assignment_epoch}")
        for member in group.members:
            has = [
                f"{topic.topic_name}{each}" for topic in member.assignment.topic_partitions for each in topic.partitions
            ]
            instance = f" instance {member.instance_id}" if member.instance_id else ""
            self.show(
                f"  {member.member_id}{instance} epoch {member.member_epoch} has {' '.join(sorted(has)) or 'nothing'}"
            )

    def list_groups(self, _words: Words, named: Named) -> None:
        states = [named["state"]] if "state" in named else []
        types = [named["type"]] if "type" in named else []
        for group in self.harness.list_groups(states, types):
            self.show(f"{group.group_id}: {group.group_state}, {group.group_type}")

    def delete_group(self, _words: Words, _named: Named) -> None:
        result = self.harness.delete_group()
        self.after_command("")
        self.show(ErrorCode(result.error_code).name)

    def advance(self, words: Words, _named: Named) -> None:
        (duration,) = words
        self.harness.advance(float(duration.removesuffix("s")))

    def restart(self, _words: Words, _named: Named) -> None:
        self.harness.restart()

    def _show_response(self, name: str, response: ConsumerGroupHeartbeatResponse) -> str:
        if response.assignment is None:
            return f"epoch {response.member_epoch}"
        return f"epoch {response.member_epoch}, assigned {_names(self.harness.consumer(name).assigned)}"


def _list(named: Named, name: str) -> list[str]:
    return list(filter(None, named.get(name, "").split("+")))


def _assignment(topics: FakeTopics, parts: str) -> Assignment:
    return assignment_from((topics.topics[each[0]].topic_id, int(each[1:])) for each in parts.split("+") if each)


def _names(assignment: Assignment) -> str:
    return " ".join(sorted(partition_names(assignment))) or "nothing"


def _show_record(record: LoadedRecord) -> str:
    event = decode_record(record.key, record.value)
    match event:
        case events.ConsumerGroupEpochWritten(_, epoch, _):
            return f"group epoch {epoch}"
        case events.ConsumerMemberWritten(_, member):
            instance = f" instance {member.instance_id}" if member.instance_id else ""
            reads = "+".join(sorted(member.topic_names)) or member.topic_regex or "nothing"
            return f"member {member.member_id}{instance} reads {reads}"
        case events.TargetEpochWritten(_, epoch):
            return f"target epoch {epoch}"
        case events.TargetWritten(_, member_id, target):
            return f"target of {member_id}: {_names(target)}"
        case events.CurrentAssignmentWritten(_, member_id, now):
            revoking = f", revoking {_names(now.revoking)}" if now.revoking else ""
            return f"{member_id} at epoch {now.epoch}, {now.state.name}: {_names(now.assigned)}{revoking}"
        case events.RegexResolved(_, regex, resolved):
            return f"{regex} matches {' '.join(sorted(resolved.topics)) or 'nothing'}"
        case OffsetCommitted(key, value):
            return f"{key.topic}-{key.partition} at {value.offset}"
        case OffsetRemoved(key):
            return f"{key.topic}-{key.partition} removed"
        case GroupWritten(group_id, value):
            return f"classic group {group_id} generation {value.generation}"
        case GroupRemoved(group_id):
            return f"classic group {group_id} removed"
        case None:
            return "something else"
        case _:
            return " ".join([type(event).__name__, *map(str, event[1:])])
