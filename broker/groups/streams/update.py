"""One heartbeat's changes of a streams group: records in the order of the log, and the group as it will be after them.

The group itself changes when the records are replayed. Kafka's order is kept: member (19), topology (23), group epoch
(17), target assignment (21 per member, then 20), current assignment (22).
"""

from functools import partial
from logging import getLogger

from broker.groups.consumer.topics import metadata_hash
from broker.groups.streams.assignor import StreamsAssignmentMember, assign_tasks
from broker.groups.streams.configuration import ConfiguredTopology, configure
from broker.groups.streams.environment import StreamsGroupEnvironment
from broker.groups.streams.group import StreamsGroup
from broker.groups.streams.member import StreamsGroupMember, StreamsMemberAssignment
from broker.groups.streams.reconciliation import HeldTasks, next_tasks
from broker.groups.streams.records import (
    StreamsGroupRecord,
    streams_current_written,
    streams_epoch_written,
    streams_member_written,
    streams_target_epoch_written,
    streams_target_written,
    streams_topology_written,
)
from broker.groups.streams.tasks import Tasks
from broker.groups.streams.topology import StreamsTopology
from protocol.errors import ErrorCode, KafkaError

STANDBY_CONFIG = "num.standby.replicas"
_FIRST_EPOCH = 2

_log = getLogger(__name__)


class StreamsGroupUpdate:
    """Collects the records of a heartbeat. `member` is the sender as the request describes it."""

    def __init__(self, group: StreamsGroup, environment: StreamsGroupEnvironment, member: StreamsGroupMember) -> None:
        self.records: list[StreamsGroupRecord] = []
        self.epoch = group.epoch
        self._group = group
        self._environment = environment
        self._member = member
        self._metadata_hash = group.metadata_hash
        self._must_bump = False

    def write_member(self) -> None:
        """Write the member if it is new or has changed."""
        if self._group.members.get(self._member.member_id) != self._member:
            self.records.append(streams_member_written(self._group.group_id, self._member))
            self._must_bump = True

    def update_topology(self, offered: StreamsTopology | None) -> StreamsTopology:
        """Return the group's topology: the offered one if the group has none. Raise KafkaError for a different one."""
        known = self._group.topology
        if known is None:
            if offered is None:
                raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "The group has no topology.")
            self.records.append(streams_topology_written(self._group.group_id, offered))
            return offered
        if offered is not None and offered.epoch >= known.epoch and offered != known:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Topology updates are not supported yet.")
        return known

    def configure(self, topology: StreamsTopology) -> ConfiguredTopology:
        """Return the topology with its tasks; look at the topics again if they may have changed."""
        group = self._group
        if group.configured is not None and group.topology is not None and not group.needs_metadata_check:
            return group.configured
        topics = self._environment.topics()
        self._metadata_hash = metadata_hash(topics, topology.required_topics)
        has_changed = self._metadata_hash != group.metadata_hash
        group.needs_metadata_check = has_changed  # until the new hash is written, which a refusal prevents
        self._must_bump |= has_changed
        if has_changed or group.topology is None or group.configured is None:
            group.configured = configure(topology, topics)
        return group.configured

    def update_epoch(self, configured: ConfiguredTopology) -> None:
        """Increment the group epoch if the members, the topics, the topology's state or the configs have changed."""
        group = self._group
        validated = configured.epoch if configured.is_ready else -1
        configs = self._configs()
        has_changed = validated != group.validated_topology_epoch or configs != group.assignment_configs
        if self._must_bump or has_changed:
            self.epoch = group.epoch + 1 if group.epoch else _FIRST_EPOCH
            self.records.append(
                streams_epoch_written(group.group_id, self.epoch, self._metadata_hash, validated, configs)
            )
            _log.info("streams group changed group=%s epoch=%d", group.group_id, self.epoch)

    def update_target(self, configured: ConfiguredTopology) -> Tasks:
        """Compute a target assignment if the group epoch is above that of the target; return the member's target."""
        group = self._group
        if self.epoch <= group.target_epoch:
            return group.target(self._member.member_id)
        members = {**group.members, self._member.member_id: self._member}
        records, targets = target_records(group, members, configured, self.epoch, self._standby_count())
        self.records += records
        return targets[self._member.member_id]

    def reconcile(
        self, current: StreamsMemberAssignment, target_epoch: int, target: Tasks, owned: Tasks | None
    ) -> StreamsMemberAssignment:
        """Take the member's next step towards the target. Raise KafkaError FENCED_MEMBER_EPOCH."""
        process_id = self._member.process_id
        held = HeldTasks(
            partial(self._group.is_held_for_active, process_id), partial(self._group.is_held_for_copy, process_id)
        )
        following = next_tasks(current, target_epoch, target, owned, held)
        if following != current:
            self.records.append(streams_current_written(self._group.group_id, self._member.member_id, following))
        return following

    def _standby_count(self) -> int:
        return self._environment.settings(self._group.group_id).num_standby_replicas

    def _configs(self) -> dict[str, str]:
        return {STANDBY_CONFIG: str(self._standby_count())}


def target_records(
    group: StreamsGroup,
    members: dict[str, StreamsGroupMember],
    configured: ConfiguredTopology,
    epoch: int,
    standby_count: int,
) -> tuple[list[StreamsGroupRecord], dict[str, Tasks]]:
    """Return the records of a new target assignment, and the targets; empty targets while topics are missing."""
    targets = dict.fromkeys(members, Tasks())
    if configured.is_ready:
        assignable = [
            StreamsAssignmentMember(each.member_id, each.process_id, group.target(each.member_id))
            for each in members.values()
        ]
        targets = assign_tasks(assignable, configured.subtopologies, standby_count)
    records = [
        streams_target_written(group.group_id, member_id, target)
        for member_id, target in targets.items()
        if not group.has_target(member_id) or target != group.target(member_id)
    ]
    return [*records, streams_target_epoch_written(group.group_id, epoch)], targets
