"""`ottla topics`: Kafka's kafka-topics."""

from collections.abc import Callable, Sequence
from functools import partial

import click

from broker.cli.shared.cluster_view import (
    PartitionInfo,
    TopicInfo,
    describe_topics,
    fill_configs,
    matching,
    topics_of_metadata,
)
from broker.cli.shared.failure import CommandFailed
from broker.cli.shared.options import client_options, forbid, json_option, key_value, one_action
from broker.cli.shared.output import print_json
from broker.cli.shared.session import session
from broker.client import Client, raise_for
from protocol.errors import ErrorCode
from protocol.lazy_dataclass import lazy_dataclass
from protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from protocol.primitives import uuid_from_text

BROKER_DEFAULT = -1
CONTROLLER_TIMEOUT_MS = 30_000
HIDDEN_TOPICS = frozenset({"__cluster_metadata"})
"""Topics listed only by name, so that consumers do not subscribe to them by pattern."""

MIN_ISR = "min.insync.replicas"

COLLISION_WARNING = (
    "WARNING: Due to limitations in metric names, topics with a period ('.') or underscore ('_') could collide."
    " To avoid issues it is best to use either, but not both."
)


@lazy_dataclass(frozen=True, slots=True)
class _Filters:
    """The filters of --describe."""

    under_replicated: bool
    unavailable: bool
    under_min_isr: bool
    at_min_isr: bool
    with_overrides: bool

    @property
    def partitions_only(self) -> bool:
        return self.under_replicated or self.unavailable or self.under_min_isr or self.at_min_isr


@lazy_dataclass(frozen=True, slots=True)
class _Selection:
    """The topics that an action applies to."""

    pattern: str | None
    topic_id: str | None
    if_exists: bool
    exclude_internal: bool


@click.command("topics", short_help="Create, delete, list, describe or extend topics.")
@click.option("--create", is_flag=True, help="Create a new topic.")
@click.option("--delete", is_flag=True, help="Delete topics.")
@click.option("--list", "list_", is_flag=True, help="List topics.")
@click.option("--describe", is_flag=True, help="Show partitions, replicas and configs of topics.")
@click.option("--alter", is_flag=True, help="Add partitions to topics.")
@click.option("--topic", metavar="TOPIC", help="A topic name or, except with --create, a regular expression.")
@click.option("--topic-id", metavar="ID", help="Id of the topic to describe.")
@click.option("--partitions", type=click.IntRange(min=1), help="Number of partitions. [default: the cluster's]")
@click.option("--replication-factor", type=click.IntRange(1, 32767), help="Replicas of each partition.")
@click.option("--replica-assignment", metavar="B:B,B:B", help="Broker ids of each partition's replicas, leader first.")
@click.option("--config", "configs", multiple=True, metavar="NAME=VALUE", help="A config of the topic to create.")
@click.option("--if-not-exists", is_flag=True, help="With --create: ignore a topic that exists.")
@click.option("--if-exists", is_flag=True, help="Ignore a topic that does not exist.")
@click.option("--exclude-internal", is_flag=True, help="Exclude internal topics.")
@click.option("--under-replicated-partitions", is_flag=True, help="Describe only under-replicated partitions.")
@click.option("--unavailable-partitions", is_flag=True, help="Describe only partitions without a live leader.")
@click.option("--under-min-isr-partitions", is_flag=True, help="Describe only partitions below min.insync.replicas.")
@click.option("--at-min-isr-partitions", is_flag=True, help="Describe only partitions at min.insync.replicas.")
@click.option("--topics-with-overrides", is_flag=True, help="Describe only topics with overridden configs.")
@click.option(
    "--partition-size-limit-per-response",
    type=click.IntRange(min=1),
    default=2000,
    show_default=True,
    help="Maximum partitions per response when describing.",
)
@client_options
@json_option
def topics(
    create: bool,
    delete: bool,
    list_: bool,
    describe: bool,
    alter: bool,
    topic: str | None,
    topic_id: str | None,
    partitions: int | None,
    replication_factor: int | None,
    replica_assignment: str | None,
    configs: tuple[str, ...],
    if_not_exists: bool,
    if_exists: bool,
    exclude_internal: bool,
    under_replicated_partitions: bool,
    unavailable_partitions: bool,
    under_min_isr_partitions: bool,
    at_min_isr_partitions: bool,
    topics_with_overrides: bool,
    partition_size_limit_per_response: int,
    bootstrap_server: str,
    command_config: str | None,
    as_json: bool,
) -> None:
    """Create, delete, list, describe or extend topics (kafka-topics)."""
    action = one_action({"list": list_, "describe": describe, "create": create, "alter": alter, "delete": delete})
    filters = _Filters(
        under_replicated_partitions,
        unavailable_partitions,
        under_min_isr_partitions,
        at_min_isr_partitions,
        topics_with_overrides,
    )
    if action != "create":
        forbid(
            {"config": configs, "replication-factor": replication_factor, "if-not-exists": if_not_exists}, "--create"
        )
    if action not in ("create", "alter"):
        forbid({"partitions": partitions, "replica-assignment": replica_assignment}, "--create or --alter")
    if action != "describe":
        forbid({"topic-id": topic_id} | {"topics-with-overrides": topics_with_overrides}, "--describe")
        if filters.partitions_only:
            raise click.UsageError("The options that select partitions require --describe.")
    if action in ("create", "alter", "delete") and topic is None:
        raise click.UsageError(f"--{action} needs --topic.")
    assignment = None if replica_assignment is None else parse_assignment(replica_assignment)
    selection = _Selection(topic, topic_id, if_exists, exclude_internal)
    per_response = partition_size_limit_per_response
    work: _Work
    match action:
        case "create":
            work = _creating(topic or "", partitions, replication_factor, assignment, configs, if_not_exists)
        case "alter":
            work = _altering(selection, partitions, assignment)
        case "delete":
            work = partial(_delete, selection=selection)
        case "list":
            work = partial(_list, selection=selection, as_json=as_json)
        case _:
            work = partial(_describe, selection=selection, filters=filters, per_response=per_response, as_json=as_json)
    with session(bootstrap_server, command_config) as client:
        client.retrying(lambda: work(client))


_Work = Callable[[Client], None]


def parse_assignment(text: str) -> list[list[int]]:
    """Parse "1:2,2:3" to the replicas of each partition. Raises UsageError."""
    try:
        assignment = [[int(broker) for broker in partition.split(":")] for partition in text.split(",")]
    except ValueError as error:
        raise click.UsageError(f"--replica-assignment {text}: use broker ids such as 1:2,2:3.") from error
    for partition, brokers in enumerate(assignment):
        if len(set(brokers)) != len(brokers):
            raise click.UsageError(f"--replica-assignment: partition {partition} lists a broker twice.")
        if len(brokers) != len(assignment[0]):
            raise click.UsageError(
                f"--replica-assignment: partition {partition} has {len(brokers)} replicas, partition 0 has"
                f" {len(assignment[0])}; use the same number for all."
            )
    return assignment


def _creating(
    name: str,
    partitions: int | None,
    replication_factor: int | None,
    assignment: list[list[int]] | None,
    configs: Sequence[str],
    if_not_exists: bool,
) -> _Work:
    if assignment is not None and (partitions is not None or replication_factor is not None):
        raise click.UsageError("--replica-assignment cannot be used with --partitions or --replication-factor.")
    wanted = CreatableTopic(
        name=name,
        num_partitions=BROKER_DEFAULT if partitions is None else partitions,
        replication_factor=BROKER_DEFAULT if replication_factor is None else replication_factor,
        assignments=[CreatableReplicaAssignment(index, brokers) for index, brokers in enumerate(assignment or [])],
        configs=[CreatableTopicConfig(*key_value(config, "--config")) for config in configs],
    )

    def create(client: Client) -> None:
        if "." in name or "_" in name:
            click.echo(COLLISION_WARNING, err=True)
        response = client.call(
            CreateTopicsRequest(topics=[wanted], timeout_ms=CONTROLLER_TIMEOUT_MS), CreateTopicsResponse
        )
        for result in response.topics:
            if result.error_code == ErrorCode.TOPIC_ALREADY_EXISTS and if_not_exists:
                return
            raise_for(result.error_code, f"topic {name!r}", result.error_message)
        click.echo(f"Created topic {name}.")

    return create


def _altering(selection: _Selection, partitions: int | None, assignment: list[list[int]] | None) -> _Work:
    if partitions is None:
        raise click.UsageError("--alter needs --partitions.")

    def alter(client: Client) -> None:
        existing = {topic.name: len(topic.partitions) for topic in _selected(client, selection)}
        wanted = [_more_partitions(name, partitions, assignment, count) for name, count in existing.items()]
        if not wanted:
            return
        response = client.call(
            CreatePartitionsRequest(topics=wanted, timeout_ms=CONTROLLER_TIMEOUT_MS), CreatePartitionsResponse
        )
        for result in response.results:
            raise_for(result.error_code, f"topic {result.name!r}", result.error_message)

    return alter


def _more_partitions(
    name: str, partitions: int, assignment: list[list[int]] | None, existing: int
) -> CreatePartitionsTopic:
    """Return the request for a topic: the option assigns all partitions, the request only the new ones."""
    new = None if assignment is None else [CreatePartitionsAssignment(brokers) for brokers in assignment[existing:]]
    return CreatePartitionsTopic(name, partitions, new)


def _delete(client: Client, selection: _Selection) -> None:
    names = [topic.name for topic in _selected(client, selection)]
    if not names:
        return
    request = DeleteTopicsRequest(
        topics=[DeleteTopicState(name=name) for name in names], timeout_ms=CONTROLLER_TIMEOUT_MS
    )
    if client.any().version_of(DeleteTopicsRequest.API_KEY) < 6:
        request = DeleteTopicsRequest(topic_names=names, timeout_ms=CONTROLLER_TIMEOUT_MS)
    for result in client.call(request, DeleteTopicsResponse).responses:
        raise_for(result.error_code, f"topic {result.name!r}", result.error_message)


def _list(client: Client, selection: _Selection, as_json: bool) -> None:
    selected = _selected(client, selection, must_exist=False)
    if as_json:
        print_json(
            [{"name": topic.name, "topicId": topic.id_text, "internal": topic.is_internal} for topic in selected]
        )
        return
    for topic in selected:
        click.echo(topic.name)


def _selected(client: Client, selection: _Selection, *, must_exist: bool = True) -> list[TopicInfo]:
    """Return the selected topics, sorted. Raises CommandFailed if a named topic is missing, unless that is allowed."""
    topics = {topic.name: topic for topic in topics_of_metadata(client, None)}
    if selection.pattern in HIDDEN_TOPICS:
        topics |= {topic.name: topic for topic in topics_of_metadata(client, [selection.pattern])}
    internal = frozenset(topic.name for topic in topics.values() if topic.is_internal)
    try:
        names = matching(topics, selection.pattern, exclude_internal=selection.exclude_internal, internal=internal)
    except ValueError as error:
        raise CommandFailed(str(error)) from error
    if selection.topic_id is not None:
        names = [name for name in names if topics[name].id == _id(selection.topic_id)]
    what = selection.topic_id or selection.pattern
    if not names and what is not None and must_exist and not selection.if_exists:
        raise CommandFailed(f"Topic '{what}' does not exist as expected; `ottla topics --list` shows the topics.")
    return [topics[name] for name in names]


def _id(text: str) -> bytes:
    try:
        return uuid_from_text(text)
    except ValueError as error:
        raise CommandFailed(f"--topic-id {text} is not a topic id of 22 base64 characters.") from error


def _describe(client: Client, selection: _Selection, filters: _Filters, per_response: int, as_json: bool) -> None:
    names = [topic.name for topic in _selected(client, selection)]
    topics = describe_topics(client, names, per_response)
    fill_configs(client, topics)
    if filters.with_overrides:
        topics = [topic for topic in topics if topic.configs]
    alive = frozenset(broker.node_id for broker in client.metadata([]).brokers)
    for topic in topics:
        topic.shown = [partition for partition in topic.partitions if _kept(topic, partition, filters, alive)]
    if as_json:
        print_json([_document(topic) for topic in topics if topic.shown or not filters.partitions_only])
        return
    adding = _adding_replicas(client)
    for topic in topics:
        _print_topic(topic, filters, adding)


def _kept(topic: TopicInfo, partition: PartitionInfo, filters: _Filters, alive: frozenset[int]) -> bool:
    least = int(topic.configs.get(MIN_ISR, "1"))
    return not filters.partitions_only or (
        (filters.under_replicated and partition.is_under_replicated)
        or (filters.unavailable and partition.leader not in alive)
        or (filters.under_min_isr and len(partition.isr) < least)
        or (filters.at_min_isr and len(partition.isr) == least)
    )


def _document(topic: TopicInfo) -> dict[str, object]:
    return {
        "name": topic.name,
        "topicId": topic.id_text,
        "internal": topic.is_internal,
        "partitionCount": len(topic.partitions),
        "replicationFactor": topic.replication_factor,
        "configs": topic.configs,
        "partitions": [
            {
                "partition": p.index,
                "leader": None if p.leader < 0 else p.leader,
                "replicas": p.replicas,
                "isr": p.isr,
                "eligibleLeaderReplicas": p.eligible,
                "lastKnownElr": p.last_known,
            }
            for p in topic.shown
        ],
    }


def _adding_replicas(client: Client) -> dict[tuple[str, int], tuple[list[int], list[int]]]:
    """Return (adding, removing) replicas of partitions under reassignment; {} if the broker does not serve the API."""
    if not client.any().serves(ListPartitionReassignmentsRequest.API_KEY):
        return {}
    response = client.call(ListPartitionReassignmentsRequest(), ListPartitionReassignmentsResponse)
    raise_for(response.error_code, "reassignments", response.error_message)
    return {
        (topic.name, p.partition_index): (p.adding_replicas, p.removing_replicas)
        for topic in response.topics
        for p in topic.partitions
    }


def _print_topic(
    topic: TopicInfo, filters: _Filters, moving: dict[tuple[str, int], tuple[list[int], list[int]]]
) -> None:
    if not filters.partitions_only:
        configs = ",".join(f"{name}={value}" for name, value in topic.configs.items())
        click.echo(
            f"Topic: {topic.name}\tTopicId: {topic.id_text}\tPartitionCount: {len(topic.partitions)}"
            f"\tReplicationFactor: {topic.replication_factor}\tConfigs: {configs}"
        )
    if filters.with_overrides:
        return
    for p in topic.shown:
        leader = "none" if p.leader < 0 else p.leader
        line = f"\tTopic: {topic.name}\tPartition: {p.index}\tLeader: {leader}\tReplicas: {_ids(p.replicas)}"
        line += f"\tIsr: {_ids(p.isr)}\tElr: {_ids_or_na(p.eligible)}\tLastKnownElr: {_ids_or_na(p.last_known)}"
        adding, removing = moving.get((topic.name, p.index), ([], []))
        if adding or removing:
            line += f"\tAdding Replicas: {_ids(adding)}\tRemoving Replicas: {_ids(removing)}"
        click.echo(line)


def _ids(ids: Sequence[int]) -> str:
    return ",".join(map(str, ids))


def _ids_or_na(ids: Sequence[int] | None) -> str:
    return "N/A" if ids is None else _ids(ids)
