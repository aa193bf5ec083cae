"""Scenarios of Kafka Streams members with `group.protocol=streams` and their coordinator.

The output lists records that reach the log, then responses. Each member has a name, which is its member id and, unless
`process` is given, its process. Members give up tasks at once, unless `keeps` is given. The topology counts words:
subtopology 0 reads t and writes r, subtopology 1 reads r and has a store with the changelog c.

    beat a [process=p] [endpoint=host] [epoch=3] [topology=1] [rebalance=60s] [keeps] [shutdown]
    leave a
    topic t 8                         create the topic or add partitions; 0 deletes it
    settings [standby=1] [delay=3s] [session=45s]
    commit a t-0=5 [epoch=1] [version=9]
    join c                            a classic member
    describe                          list [state=S] [type=T]           delete-group
    advance 3s                        restart
"""

from collections.abc import Mapping

from broker.groups.records import GroupRemoved, GroupWritten, OffsetCommitted, OffsetRemoved, decode_record
from broker.groups.streams import records as events
from broker.groups.streams.configuration import StreamsStatus
from broker.groups.streams.heartbeat import StreamsHeartbeatAnswer
from broker.groups.streams.tasks import Tasks, task_set
from broker.runtime.coordinators.shard_log import LoadedRecord
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from protocol.messages.streams_group_describe import Assignment, TopicInfo
from tests.scenarios.transcript import Command, Named, Scenario, Words
from tests.support.harnesses.group_harness import GROUP
from tests.support.harnesses.streams_group_harness import StreamsGroupHarness, task_text, word_count


class StreamsGroupScenario(Scenario):
    """Interpreter of the commands above."""

    def __init__(self) -> None:
        super().__init__()
        self.harness = StreamsGroupHarness(with_internal_topics=False)
        self.logged = 0
        self.commands: Mapping[str, Command] = {
            "beat": self.beat,
            "leave": self.leave,
            "topic": self.topic,
            "settings": self.settings,
            "commit": self.commit,
            "join": self.join,
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

    # Members.

    def beat(self, words: Words, named: Named) -> None:
        name = words[0]
        member = self.harness.member(name)
        member.process = named.get("process", member.process)
        member.endpoint = named.get("endpoint", member.endpoint)
        member.epoch = int(named.get("epoch", member.epoch))
        if "topology" in named:
            member.topology = word_count(int(named["topology"]))
        if "rebalance" in named:
            member.rebalance_timeout_ms = int(named["rebalance"].removesuffix("s")) * 1000
        answer = self.harness.beat(name, keeps="keeps" in words, shutdown="shutdown" in words)
        self.after_command("")
        self.show(f"{name} <- {_show_answer(answer)}")
        for endpoint in answer.response.partitions_by_user_endpoint or ():
            partitions = [
                f"{role}{topic.topic}{each}"
                for role, topics in (("", endpoint.active_partitions), ("standby ", endpoint.standby_partitions))
                for topic in topics
                for each in topic.partitions
            ]
            self.show(f"  {endpoint.user_endpoint.host} has {' '.join(partitions) or 'nothing'}")

    def leave(self, words: Words, _named: Named) -> None:
        (name,) = words
        response = self.harness.leave_streams(name)
        self.after_command("")
        self.show(f"{name} <- epoch {response.member_epoch}")

    def join(self, words: Words, _named: Named) -> None:
        (name,) = words
        box = self.harness.join(name)
        self.after_command("")
        self.show(f"{name} <- join {'parked' if box.answer is None else box.error.name}")

    def commit(self, words: Words, named: Named) -> None:
        name, offset = words
        partition, _, value = offset.partition("=")
        topic, _, index = partition.rpartition("-")
        epoch = int(named.get("epoch", self.harness.member(name).epoch))
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

    # Surroundings.

    def topic(self, words: Words, _named: Named) -> None:
        name, count = words
        self.harness.change_topic(name, int(count))

    def settings(self, _words: Words, named: Named) -> None:
        times = {"delay": "initial_rebalance_delay_ms", "session": "session_timeout_ms"}
        changes = {times[key]: int(named[key].removesuffix("s")) * 1000 for key in times if key in named}
        if "standby" in named:
            changes["num_standby_replicas"] = int(named["standby"])
        self.harness.settings = self.harness.settings._replace(**changes)

    def describe(self, _words: Words, _named: Named) -> None:
        group = self.harness.execute(lambda shard: shard.streams_groups.describe(GROUP))
        if group.error_code:
            self.show(f"{ErrorCode(group.error_code).name}: {group.error_message}")
            return
        self.show(f"{group.group_state}, epoch {group.group_epoch}, target {group.assignment_epoch}")
        topology = group.topology
        for each in () if topology is None else topology.subtopologies or ():
            internal = [*each.repartition_source_topics, *each.state_changelog_topics]
            self.show(f"  subtopology {each.subtopology_id}: {' '.join([*each.source_topics, *map(_sized, internal)])}")
        for member in group.members:
            has, wanted = _tasks(member.assignment), _tasks(member.target_assignment)
            target = "" if has == wanted else f", target {task_text(wanted)}"
            self.show(f"  {member.member_id} epoch {member.member_epoch} has {task_text(has)}{target}")

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


def _show_answer(answer: StreamsHeartbeatAnswer) -> str:
    response = answer.response
    parts = [f"epoch {response.member_epoch}"]
    if response.active_tasks is not None:
        tasks = Tasks(
            task_set(response.active_tasks),
            task_set(response.standby_tasks or ()),
            task_set(response.warmup_tasks or ()),
        )
        parts.append(f"assigned {task_text(tasks)}")
    parts += [StreamsStatus(status.status_code).name for status in response.status or ()]
    if answer.missing_topics:
        parts.append(f"to create: {' '.join(f'{topic.name}×{topic.partitions}' for topic in answer.missing_topics)}")
    return ", ".join(parts)


def _sized(topic: TopicInfo) -> str:
    return f"{topic.name}×{topic.partitions}"


def _tasks(assignment: Assignment) -> Tasks:
    return Tasks(
        task_set(assignment.active_tasks), task_set(assignment.standby_tasks), task_set(assignment.warmup_tasks)
    )


def _show_record(record: LoadedRecord) -> str:
    event = decode_record(record.key, record.value)
    match event:
        case events.StreamsEpochWritten(_, epoch, _, validated, configs):
            texts = "".join(f", {name} {value}" for name, value in configs)
            return f"group epoch {epoch}, validated topology {validated}{texts}"
        case events.StreamsTopologyWritten(_, topology):
            return f"topology {topology.epoch}"
        case events.StreamsMemberWritten(_, member):
            return f"member {member.member_id} of process {member.process_id}, topology {member.topology_epoch}"
        case events.StreamsTargetEpochWritten(_, epoch):
            return f"target epoch {epoch}"
        case events.StreamsTargetWritten(_, member_id, target):
            return f"target of {member_id}: {task_text(target)}"
        case events.StreamsCurrentWritten(_, member_id, assignment):
            revoking = f", revoking {task_text(assignment.revoking.without_epochs())}" if assignment.revoking else ""
            has = task_text(assignment.assigned.without_epochs())
            return f"{member_id} at epoch {assignment.epoch}, {assignment.state.name}: {has}{revoking}"
        case GroupWritten():
            return "classic group"
        case OffsetCommitted(key, value):
            return f"offset {key.topic}-{key.partition} = {value.offset}"
        case OffsetRemoved(key):
            return f"no offset {key.topic}-{key.partition}"
        case GroupRemoved():
            return "no classic group"
        case _:
            return type(event).__name__
