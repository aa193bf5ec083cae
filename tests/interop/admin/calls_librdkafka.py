"""librdkafka's admin calls (confluent-kafka). The import of this module registers them in `calls.CALLS`."""

import time
from typing import Any

import confluent_kafka
from confluent_kafka import ConsumerGroupState, ConsumerGroupTopicPartitions, ElectionType, TopicPartition
from confluent_kafka import admin as ck

from tests.interop.admin.calls import CALLS, TIMEOUT_S, Subject, call, each_of, plain

NEW_TOPICS = {
    "two partitions": ck.NewTopic("rd-a", 2),
    "defaults": ck.NewTopic("rd-b"),
    "with configs": ck.NewTopic("rd-c", 1, 1, config={"cleanup.policy": "compact", "segment.bytes": "1048576"}),
    "with an assignment": ck.NewTopic("rd-d", 2, replica_assignment=[[1], [1]]),
    "that exists": ck.NewTopic("rd-a", 2),
    "named ../x": ck.NewTopic("../x", 1),
    "named dot": ck.NewTopic(".", 1),
    "named with a space": ck.NewTopic("a b", 1),
    "with a name of 250 characters": ck.NewTopic("n" * 250, 1),
    "colliding by dot and underscore": ck.NewTopic("rd_x.y", 1),
    "that collides": ck.NewTopic("rd.x_y", 1),
    "named __cluster_metadata": ck.NewTopic("__cluster_metadata", 1),
    "with three replicas": ck.NewTopic("rd-e", 1, 3),
    "with an unknown broker": ck.NewTopic("rd-f", 1, replica_assignment=[[99]]),
    "with an unknown config": ck.NewTopic("rd-g", 1, 1, config={"no.such.config": "1"}),
    "with a bad config value": ck.NewTopic("rd-h", 1, 1, config={"retention.ms": "soon"}),
    "with a bad cleanup policy": ck.NewTopic("rd-i", 1, 1, config={"cleanup.policy": "burn"}),
    "with min above max compaction lag": ck.NewTopic(
        "rd-j", 1, 1, config={"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"}
    ),
    "with an out-of-range value": ck.NewTopic("rd-k", 1, 1, config={"min.insync.replicas": "0"}),
}

for title, new_topic in NEW_TOPICS.items():

    @call(f"librdkafka: create topic {title}")
    def create(subject: Subject, new_topic: ck.NewTopic = new_topic) -> object:
        return each_of(subject.librdkafka.create_topics([new_topic]))


@call("librdkafka: create topic, validate only")
def create_validate_only(subject: Subject) -> object:
    created = each_of(subject.librdkafka.create_topics([ck.NewTopic("rd-v", 1, 1)], validate_only=True))
    return created, "rd-v" in subject.librdkafka.list_topics(timeout=TIMEOUT_S).topics


@call("librdkafka: create two topics, one of them bad")
def create_mixed(subject: Subject) -> object:
    return each_of(subject.librdkafka.create_topics([ck.NewTopic("rd-m", 1, 1), ck.NewTopic("rd?m", 1, 1)]))


NEW_PARTITIONS = {
    "more": ck.NewPartitions("rd-a", 4),
    "the same count": ck.NewPartitions("rd-a", 4),
    "fewer": ck.NewPartitions("rd-a", 1),
    "of an unknown topic": ck.NewPartitions("rd-unknown", 4),
    "with an assignment": ck.NewPartitions("rd-b", 2, replica_assignment=[[1]]),
    "with an unknown broker": ck.NewPartitions("rd-b", 3, replica_assignment=[[99]]),
}

for title, new_partitions in NEW_PARTITIONS.items():

    @call(f"librdkafka: create partitions, {title}")
    def create_partitions(subject: Subject, new_partitions: ck.NewPartitions = new_partitions) -> object:
        return each_of(subject.librdkafka.create_partitions([new_partitions]))


def _entries(result: Any) -> dict[str, object]:
    return {
        entry.name: {
            "value": entry.value,
            "source": entry.source,
            "read_only": entry.is_read_only,
            "default": entry.is_default,
            "sensitive": entry.is_sensitive,
            "synonyms": {name: [each.value, each.source] for name, each in entry.synonyms.items()},
        }
        for entry in result.values()
    }


RESOURCES = {
    "topic": ck.ConfigResource(ck.ResourceType.TOPIC, "rd-a"),
    "topic with own values": ck.ConfigResource(ck.ResourceType.TOPIC, "rd-c"),
    "unknown topic": ck.ConfigResource(ck.ResourceType.TOPIC, "rd-unknown"),
    "badly named topic": ck.ConfigResource(ck.ResourceType.TOPIC, "../x"),
    "unknown broker": ck.ConfigResource(ck.ResourceType.BROKER, "99"),
    "broker that is no number": ck.ConfigResource(ck.ResourceType.BROKER, "one"),
}


def timeout_s(resource: ck.ConfigResource) -> int:
    """Return the timeout: librdkafka searches for an unknown broker until it expires; other calls may be slow."""
    return 5 if resource.restype is ck.ResourceType.BROKER and resource.name == "99" else TIMEOUT_S


for title, resource in RESOURCES.items():

    @call(f"librdkafka: describe configs of a {title}")
    def describe_configs(subject: Subject, resource: ck.ConfigResource = resource) -> object:
        return each_of(subject.librdkafka.describe_configs([resource], request_timeout=timeout_s(resource)), _entries)


def _change(name: str, value: str | None, operation: str) -> ck.ConfigEntry:
    return ck.ConfigEntry(name, value, incremental_operation=ck.AlterConfigOpType[operation])


def _topic(*entries: ck.ConfigEntry, name: str = "rd-c") -> ck.ConfigResource:
    return ck.ConfigResource(ck.ResourceType.TOPIC, name, incremental_configs=list(entries))


def _broker(*entries: ck.ConfigEntry, name: str = "1") -> ck.ConfigResource:
    return ck.ConfigResource(ck.ResourceType.BROKER, name, incremental_configs=list(entries))


ALTERATIONS = {
    "set": _topic(_change("retention.ms", "1000000", "SET")),
    "append": _topic(_change("cleanup.policy", "delete", "APPEND")),
    "append what is there": _topic(_change("cleanup.policy", "delete", "APPEND")),
    "subtract": _topic(_change("cleanup.policy", "compact", "SUBTRACT")),
    "append to a number": _topic(_change("retention.ms", "5", "APPEND")),
    "delete": _topic(_change("retention.ms", None, "DELETE")),
    "delete what is not set": _topic(_change("flush.ms", None, "DELETE")),
    "unknown key": _topic(_change("no.such.key", "1", "SET")),
    "bad value": _topic(_change("max.message.bytes", "-5", "SET")),
    "same key twice": _topic(_change("retention.ms", "1", "SET"), _change("retention.ms", "2", "SET")),
    "unknown topic": _topic(_change("retention.ms", "1", "SET"), name="rd-unknown"),
    "dynamic key of a broker": _broker(_change("log.cleaner.backoff.ms", "16000", "SET")),
    "read-only key of a broker": _broker(_change("node.id", "7", "SET")),
    "unknown key of a broker": _broker(_change("no.such.key", "7", "SET")),
    "unknown broker": _broker(_change("log.cleaner.backoff.ms", "16000", "SET"), name="99"),
}

for title, alteration in ALTERATIONS.items():

    @call(f"librdkafka: incremental alter configs, {title}")
    def incremental_alter(subject: Subject, alteration: ck.ConfigResource = alteration) -> object:
        return each_of(
            subject.librdkafka.incremental_alter_configs([alteration], request_timeout=timeout_s(alteration))
        )


CALLS["librdkafka: describe configs of a topic after changes"] = CALLS[
    "librdkafka: describe configs of a topic with own values"
]


@call("librdkafka: records for what follows")
def produce_records(subject: Subject) -> object:
    producer = confluent_kafka.Producer({"bootstrap.servers": subject.bootstrap})
    for number in range(100):
        producer.produce("rd-a", b"value-%d" % number, b"key", partition=0, timestamp=1_700_000_000_000 + number)
    return producer.flush(TIMEOUT_S)


OFFSET_SPECS = {
    "earliest": ck.OffsetSpec.earliest(),
    "latest": ck.OffsetSpec.latest(),
    "max timestamp": ck.OffsetSpec.max_timestamp(),
    "by timestamp": ck.OffsetSpec.for_timestamp(1_700_000_000_050),
    "by a timestamp in the future": ck.OffsetSpec.for_timestamp(1_900_000_000_000),
}

for title, spec in OFFSET_SPECS.items():

    @call(f"librdkafka: list offsets, {title}")
    def list_offsets(subject: Subject, spec: ck.OffsetSpec = spec) -> object:
        asked = {TopicPartition("rd-a", 0): spec, TopicPartition("rd-a", 1): spec}
        return each_of(subject.librdkafka.list_offsets(asked), lambda found: [found.offset, found.timestamp])


@call("librdkafka: list offsets of an unknown partition")
def list_offsets_unknown(subject: Subject) -> object:
    asked = {TopicPartition("rd-a", 77): ck.OffsetSpec.latest()}
    return each_of(subject.librdkafka.list_offsets(asked, request_timeout=3))


@call("librdkafka: delete records below 40, then the start offset")
def delete_records(subject: Subject) -> object:
    deleted = each_of(
        subject.librdkafka.delete_records([TopicPartition("rd-a", 0, 40)]), lambda each: each.low_watermark
    )
    asked = {TopicPartition("rd-a", 0): ck.OffsetSpec.earliest()}
    return deleted, each_of(subject.librdkafka.list_offsets(asked), lambda found: found.offset)


for title, offset in {"all": confluent_kafka.OFFSET_END, "beyond the end": 5000, "below the start": 10}.items():

    @call(f"librdkafka: delete records, {title}")
    def delete_more_records(subject: Subject, offset: int = offset) -> object:
        asked = [TopicPartition("rd-a", 0, offset)]
        return each_of(subject.librdkafka.delete_records(asked), lambda each: each.low_watermark)


@call("librdkafka: delete records of a compacted topic")
def delete_records_compacted(subject: Subject) -> object:
    subject.librdkafka.create_topics([ck.NewTopic("rd-compact", 1, 1, config={"cleanup.policy": "compact"})])[
        "rd-compact"
    ].result(TIMEOUT_S)
    subject.settle()
    return each_of(subject.librdkafka.delete_records([TopicPartition("rd-compact", 0, 0)]))


GROUP = "rd-group"


def _consumer(subject: Subject) -> confluent_kafka.Consumer:
    settings = {"bootstrap.servers": subject.bootstrap, "group.id": GROUP, "auto.offset.reset": "earliest"}
    return confluent_kafka.Consumer({**settings, "client.id": "admin-calls", "enable.auto.commit": False})


@call("librdkafka: a group while it has a member")
def group_with_member(subject: Subject) -> object:
    admin = subject.librdkafka
    consumer = _consumer(subject)
    try:
        consumer.subscribe(["rd-b"])
        while not consumer.assignment():
            consumer.poll(0.5)
        consumer.commit(offsets=[TopicPartition("rd-b", 0, 3, metadata="note")], asynchronous=False)
        described = each_of(admin.describe_consumer_groups([GROUP]), _group)
        deleted = each_of(admin.delete_consumer_groups([GROUP]))
        listed = sorted((each.group_id, each.state.name, each.is_simple_consumer_group) for each in _listed(admin))
        return described, deleted, listed
    finally:
        consumer.close()


def _listed(admin: ck.AdminClient, **asked: Any) -> list[Any]:
    """Return all groups once they are loaded; until then the response is an error, which librdkafka does not retry."""
    deadline = time.monotonic() + TIMEOUT_S
    while (found := admin.list_consumer_groups(**asked).result(TIMEOUT_S)).errors and time.monotonic() < deadline:
        time.sleep(0.05)
    return list(found.valid)


def _group(group: Any) -> object:
    return {
        "state": group.state.name,
        "assignor": group.partition_assignor,
        "simple": group.is_simple_consumer_group,
        "type": group.type.name,
        "coordinator": group.coordinator.id,
        "members": [
            [member.client_id, member.host, [plain(each.topic) for each in member.assignment.topic_partitions]]
            for member in group.members
        ],
    }


@call("librdkafka: a group after its member left")
def group_without_member(subject: Subject) -> object:
    admin = subject.librdkafka
    asked = [ConsumerGroupTopicPartitions(GROUP)]
    offsets = each_of(admin.list_consumer_group_offsets(asked), _offsets)
    return each_of(admin.describe_consumer_groups([GROUP]), _group), offsets


def _offsets(found: Any) -> object:
    return sorted(
        [each.topic, each.partition, each.offset, each.metadata, each.leader_epoch] for each in found.topic_partitions
    )


@call("librdkafka: alter a group's offsets")
def alter_offsets(subject: Subject) -> object:
    changed = [TopicPartition("rd-b", 0, 1), TopicPartition("rd-b", 5, 1)]
    altered = subject.librdkafka.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(GROUP, changed)])
    return each_of(
        altered,
        lambda found: [[each.partition, str(each.error and each.error.name())] for each in found.topic_partitions],
    )


@call("librdkafka: offsets of one partition of an unknown group")
def offsets_unknown_group(subject: Subject) -> object:
    asked = [ConsumerGroupTopicPartitions("nobody", [TopicPartition("rd-b", 0)])]
    return each_of(subject.librdkafka.list_consumer_group_offsets(asked), _offsets)


@call("librdkafka: list groups by state")
def list_groups_by_state(subject: Subject) -> object:
    admin = subject.librdkafka
    return {
        state.name: sorted(each.group_id for each in _listed(admin, states={state}))
        for state in (ConsumerGroupState.EMPTY, ConsumerGroupState.STABLE)
    }


@call("librdkafka: describe an unknown group")
def describe_unknown_group(subject: Subject) -> object:
    return each_of(subject.librdkafka.describe_consumer_groups(["nobody"]), _group)


@call("librdkafka: delete groups, one of them unknown")
def delete_groups(subject: Subject) -> object:
    return each_of(subject.librdkafka.delete_consumer_groups([GROUP, "nobody"]))


@call("librdkafka: describe topics")
def describe_topics(subject: Subject) -> object:
    names = confluent_kafka.TopicCollection(["rd-a", "rd-unknown", "../x"])
    described = subject.librdkafka.describe_topics(names, include_authorized_operations=True)
    return each_of(
        described,
        lambda topic: {
            "internal": topic.is_internal,
            "partitions": [
                [each.id, each.leader.id, [node.id for node in each.replicas], [node.id for node in each.isr]]
                for each in topic.partitions
            ],
            "operations": sorted(each.name for each in topic.authorized_operations or ()),
        },
    )


@call("librdkafka: describe the cluster")
def describe_cluster(subject: Subject) -> object:
    found = subject.librdkafka.describe_cluster(include_authorized_operations=True).result(TIMEOUT_S)
    operations = sorted(each.name for each in found.authorized_operations)
    return {"nodes": [node.id for node in found.nodes], "controller": found.controller.id, "operations": operations}


@call("librdkafka: elect leaders")
def elect_leaders(subject: Subject) -> object:
    asked = [TopicPartition("rd-a", 0), TopicPartition("rd-a", 77), TopicPartition("rd-unknown", 0)]
    results = {}
    for kind in (ElectionType.PREFERRED, ElectionType.UNCLEAN):
        elected = subject.librdkafka.elect_leaders(kind, asked).result(TIMEOUT_S)
        results[kind.name] = {f"{p.topic}-{p.partition}": error and error.name() for p, error in elected.items()}
    return results


@call("librdkafka: store, describe and delete scram credentials")
def scram_credentials(subject: Subject) -> object:
    admin = subject.librdkafka
    credential = ck.ScramCredentialInfo(ck.ScramMechanism.SCRAM_SHA_512, 8192)
    stored = each_of(
        admin.alter_user_scram_credentials([ck.UserScramCredentialUpsertion("rd-user", credential, b"secret")])
    )
    subject.settle()
    return {
        "store": stored,
        "describe": each_of(
            admin.describe_user_scram_credentials(["rd-user", "rd-nobody"]),
            lambda found: [[info.mechanism.name, info.iterations] for info in found.scram_credential_infos],
        ),
        "delete": each_of(
            admin.alter_user_scram_credentials(
                [ck.UserScramCredentialDeletion("rd-user", ck.ScramMechanism.SCRAM_SHA_512)]
            )
        ),
        "delete again": each_of(
            admin.alter_user_scram_credentials(
                [ck.UserScramCredentialDeletion("rd-user", ck.ScramMechanism.SCRAM_SHA_512)]
            )
        ),
    }


@call("librdkafka: acls without an authorizer")
def acls(subject: Subject) -> object:
    any_of = (ck.AclOperation.ANY, ck.AclPermissionType.ANY)
    binding = ck.AclBinding(
        ck.ResourceType.TOPIC,
        "rd-a",
        ck.ResourcePatternType.LITERAL,
        "User:u",
        "*",
        ck.AclOperation.READ,
        ck.AclPermissionType.ALLOW,
    )
    every = ck.AclBindingFilter(ck.ResourceType.ANY, None, ck.ResourcePatternType.ANY, None, None, *any_of)
    admin = subject.librdkafka
    return {
        "create": list(each_of(admin.create_acls([binding])).values()),
        "describe": list(each_of({"every": admin.describe_acls(every)}).values()),
        "delete": list(each_of(admin.delete_acls([every])).values()),
    }


@call("librdkafka: delete topics, one of them unknown")
def delete_topics(subject: Subject) -> object:
    return each_of(subject.librdkafka.delete_topics(["rd-a", "rd-unknown"]))


@call("librdkafka: list topics at the end")
def list_topics(subject: Subject) -> object:
    topics = subject.librdkafka.list_topics(timeout=TIMEOUT_S).topics
    return {name: len(topic.partitions) for name, topic in sorted(topics.items()) if name.startswith("rd")}
