"""Actions of the page: each is a request in this node's own path, with the rights of the principal.

The exception is the commit of offsets: only the group's coordinator accepts it, so this node checks the principal's
rights, audits the decision, and sends the request to the coordinator with its own rights.
"""

from collections import defaultdict
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final, NamedTuple

from broker.api.pipeline.permission import READ_GROUP, READ_TOPIC
from broker.console.cluster import ConsoleCluster, check
from broker.console.groups import GroupViews
from broker.console.request import ConsoleError, ConsoleRequest, Json, View, bad_request, not_found
from broker.metadata.image.config_image import ResourceType
from broker.metadata.timeline.change import count_of
from broker.net.peer import PeerError
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from protocol.messages.elect_leaders import TopicPartitions as ElectedTopic
from protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)

TIMEOUT_MS: Final = 25_000
PARTITIONS_MAX: Final = 10_000
_RESOURCES: Final = {"topic": ResourceType.TOPIC, "broker": ResourceType.BROKER, "group": ResourceType.GROUP}
_ELECTIONS: Final = {"preferred": 0, "unclean": 1}
_SET: Final = 0
_DELETE: Final = 1
_EARLIEST: Final = -2
_LATEST: Final = -1
_COMMIT_VERSIONS: Final = (2, 9)  # with names of topics


class _Body(NamedTuple):
    """The JSON object of an action, with checks. All methods raise ConsoleError."""

    value: Json

    def text(self, name: str) -> str:
        value = self.value.get(name)
        if not isinstance(value, str) or not value or len(value) > 1_000:
            raise bad_request(f'"{name}" must be a text.')
        return value

    def number(self, name: str, low: int, high: int, default: int | None = None) -> int:
        value = self.value.get(name, default)
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise bad_request(f'"{name}" must be a number from {low} to {high}.')
        return value

    def texts(self, name: str) -> Mapping[str, str]:
        value = self.value.get(name, {})
        if not isinstance(value, dict) or not all(isinstance(each, str) for each in value.values()):
            raise bad_request(f'"{name}" must be an object of texts.')
        return value

    def items(self, name: str) -> list[Any]:
        value = self.value.get(name, [])
        if not isinstance(value, list) or len(value) > PARTITIONS_MAX:
            raise bad_request(f'"{name}" must be a list of at most {PARTITIONS_MAX} items.')
        return value


class Actions:
    """The actions by name."""

    def __init__(self, cluster: ConsoleCluster, groups: GroupViews) -> None:
        self._cluster = cluster
        self._groups = groups
        self.by_name: Mapping[str, View] = {
            "create-topic": self.create_topic,
            "delete-topic": self.delete_topic,
            "create-partitions": self.create_partitions,
            "alter-configs": self.alter_configs,
            "elect-leaders": self.elect_leaders,
            "reset-offsets": self.reset_offsets,
        }

    async def create_topic(self, request: ConsoleRequest) -> Json:
        """Create a topic; -1 stands for the cluster's default."""
        body = _Body(request.body)
        name = body.text("name")
        topic = CreatableTopic(
            name,
            body.number("partitions", -1, PARTITIONS_MAX, -1),
            body.number("replication_factor", -1, 1_000, -1),
            configs=[CreatableTopicConfig(key, value) for key, value in body.texts("configs").items()],
        )
        response = await self._cluster.submit(request, CreateTopicsRequest([topic], TIMEOUT_MS), CreateTopicsResponse)
        for each in response.topics:
            check(each.error_code, each.error_message, f'Topic "{name}"')
        return {"message": f'Topic "{name}" is created.'}

    async def delete_topic(self, request: ConsoleRequest) -> Json:
        """Delete a topic."""
        name = _Body(request.body).text("name")
        asked = DeleteTopicsRequest([DeleteTopicState(name)], timeout_ms=TIMEOUT_MS)
        response = await self._cluster.submit(request, asked, DeleteTopicsResponse)
        for each in response.responses:
            check(each.error_code, each.error_message, f'Topic "{name}"')
        return {"message": f'Topic "{name}" is deleted.'}

    async def create_partitions(self, request: ConsoleRequest) -> Json:
        """Raise the number of partitions of a topic."""
        body = _Body(request.body)
        name, count = body.text("name"), body.number("count", 1, PARTITIONS_MAX)
        asked = CreatePartitionsRequest([CreatePartitionsTopic(name, count, None)], TIMEOUT_MS)
        response = await self._cluster.submit(request, asked, CreatePartitionsResponse)
        for each in response.results:
            check(each.error_code, each.error_message, f'Topic "{name}"')
        return {"message": f'Topic "{name}" has {count_of(count, "partition")}.'}

    async def alter_configs(self, request: ConsoleRequest) -> Json:
        """Set and delete configs of a topic, a broker or a group."""
        body = _Body(request.body)
        kind, name = _RESOURCES.get(body.text("resource")), body.text("name")
        if kind is None:
            raise bad_request(f'"resource" must be one of {", ".join(_RESOURCES)}.')
        deleted = body.items("delete")
        if not all(isinstance(key, str) for key in deleted):
            raise bad_request('"delete" must be a list of keys.')
        changes = [AlterableConfig(key, _SET, value) for key, value in body.texts("set").items()]
        changes += [AlterableConfig(key, _DELETE, None) for key in deleted]
        if not changes:
            raise bad_request("Nothing is to be set or deleted.")
        asked = IncrementalAlterConfigsRequest([AlterConfigsResource(kind, name, changes)])
        response = await self._cluster.submit(request, asked, IncrementalAlterConfigsResponse)
        for each in response.responses:
            check(each.error_code, each.error_message, f'{body.text("resource").capitalize()} "{name}"')
        return {"message": f'{count_of(len(changes), "config")} of {body.text("resource")} "{name}" changed.'}

    async def elect_leaders(self, request: ConsoleRequest) -> Json:
        """Elect leaders of partitions; without partitions, of all that need it."""
        body = _Body(request.body)
        kind = _ELECTIONS.get(body.text("kind"))
        if kind is None:
            raise bad_request(f'"kind" must be one of {", ".join(_ELECTIONS)}.')
        wanted: defaultdict[str, list[int]] = defaultdict(list)
        for each in body.items("partitions"):
            part = _Body(each if isinstance(each, dict) else {})
            wanted[part.text("topic")].append(part.number("partition", 0, 2**31 - 1))
        topics = [ElectedTopic(topic, sorted(found)) for topic, found in wanted.items()]
        asked = ElectLeadersRequest(kind, topics or None, TIMEOUT_MS)
        response = await self._cluster.submit(request, asked, ElectLeadersResponse)
        check(response.error_code, None, "The election")
        elected = 0
        for topic in response.replica_election_results:
            for partition in topic.partition_result:
                if partition.error_code == ErrorCode.ELECTION_NOT_NEEDED:
                    continue
                check(
                    partition.error_code, partition.error_message, f"Partition {topic.topic}-{partition.partition_id}"
                )
                elected += 1
        return {"message": f"{count_of(elected, 'leader')} elected."}

    async def reset_offsets(self, request: ConsoleRequest) -> Json:
        """Commit offsets for a group without members, as `kafka-consumer-groups --reset-offsets` does."""
        body = _Body(request.body)
        group, topic, target = body.text("group"), body.text("topic"), body.value.get("to")
        require, api = self._cluster.require, ApiKey.OFFSET_COMMIT
        require(request, READ_GROUP, group, f'commit offsets of group "{group}"', api)
        require(request, READ_TOPIC, topic, f'read topic "{topic}"', api)
        image = self._cluster.image.topics.by_name(topic)
        if image is None:
            raise not_found(f'Topic "{topic}" does not exist.')
        indexes = [_Body({"partition": each}).number("partition", 0, 2**31 - 1) for each in body.items("partitions")]
        offsets = await self._targets(topic, indexes or sorted(image.partitions), target)
        commit = OffsetCommitRequest(
            group,
            topics=[
                OffsetCommitRequestTopic(
                    topic,
                    partitions=[
                        OffsetCommitRequestPartition(index, offset, -1, "") for index, offset in offsets.items()
                    ],
                )
            ],
        )
        coordinator = self._groups.coordinator(group)
        try:
            response = await self._cluster.ask(coordinator, commit, OffsetCommitResponse, versions=_COMMIT_VERSIONS)
        except PeerError as error:
            raise ConsoleError(HTTPStatus.SERVICE_UNAVAILABLE, f"The coordinator {error}.") from error
        for found in response.topics:
            for each in found.partitions:
                if each.error_code == ErrorCode.UNKNOWN_MEMBER_ID:
                    sentence = f'Group "{group}" has members; stop them before you reset offsets.'
                    raise ConsoleError(HTTPStatus.CONFLICT, sentence)
                check(each.error_code, None, f"Partition {topic}-{each.partition_index}")
        return {
            "message": f'{count_of(len(offsets), "offset")} of group "{group}" committed.',
            "offsets": [{"partition": index, "offset": offset} for index, offset in sorted(offsets.items())],
        }

    async def _targets(self, topic: str, indexes: list[int], target: object) -> Mapping[int, int]:
        """Return the offset to commit for each partition, within the bounds of its log."""
        earliest = await self._offsets(topic, indexes, _EARLIEST)
        if target == "earliest":
            return earliest
        latest = await self._offsets(topic, indexes, _LATEST)
        if target == "latest":
            return latest
        if isinstance(target, int) and not isinstance(target, bool) and target >= 0:
            return {index: min(max(target, earliest[index]), latest[index]) for index in indexes}
        if isinstance(target, str) and target.startswith("time:") and target[5:].isascii() and target[5:].isdigit():
            found = await self._offsets(topic, indexes, min(int(target[5:]), 2**62))
            return {index: found[index] if found[index] >= 0 else latest[index] for index in indexes}
        raise bad_request('"to" must be "earliest", "latest", an offset, or "time:" with milliseconds since 1970.')

    async def _offsets(self, topic: str, indexes: list[int], timestamp: int) -> dict[int, int]:
        image = self._cluster.image.topics.by_name(topic)
        by_leader: defaultdict[int, list[int]] = defaultdict(list)
        for index in indexes:
            registration = None if image is None else image.partitions.get(index)
            if registration is None:
                raise not_found(f"Partition {topic}-{index} does not exist.")
            by_leader[registration.leader].append(index)

        def request(leader: int) -> ListOffsetsRequest:
            partitions = [ListOffsetsPartition(index, timestamp=timestamp) for index in by_leader[leader]]
            return ListOffsetsRequest(-1, 0, [ListOffsetsTopic(topic, partitions)], TIMEOUT_MS)

        answers = await self._cluster.ask_all(sorted(by_leader), request, ListOffsetsResponse)
        found: dict[int, int] = {}
        for response in answers.by_id.values():
            for each in (partition for one in response.topics for partition in one.partitions):
                check(each.error_code, None, f"Partition {topic}-{each.partition_index}")
                found[each.partition_index] = each.offset
        absent = [index for index in indexes if index not in found]
        if absent:
            raise ConsoleError(
                HTTPStatus.SERVICE_UNAVAILABLE, f"The leader of partition {topic}-{absent[0]} does not answer."
            )
        return found
