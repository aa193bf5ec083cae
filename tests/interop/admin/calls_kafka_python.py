"""kafka-python's admin calls, good and bad. The import of this module registers them in `calls.CALLS`."""

from collections.abc import Callable
from typing import Any

import kafka
from kafka.admin import ConfigFilterType, ConfigResource, MemberToRemove, NewPartitions, NewTopic, OffsetSpec
from kafka.structs import OffsetAndMetadata, TopicPartition

from tests.interop.admin.calls import Subject, call

TOPIC, GROUP = "kp-a", "kp-group"

STEPS: dict[str, Callable[[Any], object]] = {
    "create topics, good and bad": lambda admin: admin.create_topics(
        [NewTopic(TOPIC, 3, 1), NewTopic("kp b", 1, 1), NewTopic("kp-c", 1, 4), NewTopic("kp-d", 0, 1)],
        raise_errors=False,
    ),
    "create a topic that exists": lambda admin: admin.create_topics([NewTopic(TOPIC, 3, 1)]),
    "create a topic, validate only": lambda admin: admin.create_topics([NewTopic("kp-v", 1, 1)], validate_only=True),
    "create partitions, good and bad": lambda admin: admin.create_partitions(
        {TOPIC: NewPartitions(4), "kp-unknown": NewPartitions(2)}, raise_errors=False
    ),
    "create partitions, validate only": lambda admin: admin.create_partitions(
        {TOPIC: NewPartitions(9)}, validate_only=True
    ),
    "describe topic partitions, one at a time": lambda admin: admin.describe_topic_partitions(
        [TOPIC], response_partition_limit=1
    ),
    "describe the cluster": lambda admin: admin.describe_cluster(),
    "describe configs, with synonyms": lambda admin: admin.describe_configs(
        [ConfigResource("TOPIC", TOPIC)], include_synonyms=True, config_filter=ConfigFilterType.ALL
    ),
    "alter configs": lambda admin: admin.alter_configs([ConfigResource("TOPIC", TOPIC, {"retention.ms": "77777"})]),
    "alter configs, bad value": lambda admin: admin.alter_configs(
        [ConfigResource("TOPIC", TOPIC, {"retention.ms": "x"})]
    ),
    "alter configs, the whole set at once": lambda admin: admin.alter_configs(
        [ConfigResource("TOPIC", TOPIC, {"flush.ms": "1000"})], incremental=False
    ),
    "describe configs, modified": lambda admin: admin.describe_configs([ConfigResource("TOPIC", TOPIC)]),
    "reset configs": lambda admin: admin.reset_configs([ConfigResource("TOPIC", TOPIC, {"flush.ms": None})]),
    "list config resources": lambda admin: admin.list_config_resources(),
    "describe topics": lambda admin: admin.describe_topics([TOPIC, "kp-unknown"]),
    "list groups": lambda admin: admin.list_groups(),
    "alter group offsets": lambda admin: admin.alter_group_offsets(
        GROUP,
        {
            TopicPartition(TOPIC, 0): OffsetAndMetadata(5, "five", -1),
            TopicPartition(TOPIC, 9): OffsetAndMetadata(5, "", -1),
        },
    ),
    "list group offsets": lambda admin: admin.list_group_offsets({GROUP: None, "nobody": [TopicPartition(TOPIC, 0)]}),
    "describe groups, known and unknown": lambda admin: admin.describe_groups([GROUP, "nobody"]),
    "delete group offsets": lambda admin: admin.delete_group_offsets(
        GROUP, [TopicPartition(TOPIC, 0), TopicPartition("kp-unknown", 0)]
    ),
    "remove unknown members": lambda admin: admin.remove_group_members(GROUP, [MemberToRemove(group_instance_id="x")]),
    "delete groups": lambda admin: admin.delete_groups([GROUP, "nobody"]),
    "list partition offsets": lambda admin: admin.list_partition_offsets(
        {TopicPartition(TOPIC, 0): OffsetSpec.LATEST, TopicPartition(TOPIC, 1): OffsetSpec.EARLIEST}
    ),
    "describe producers": lambda admin: admin.describe_producers([TopicPartition(TOPIC, 0)]),
    "describe log dirs": lambda admin: [
        sorted(set(each)) for each in _dicts(admin.describe_log_dirs([TopicPartition(TOPIC, 0)]))
    ],
    "list partition reassignments": lambda admin: admin.list_partition_reassignments(),
    "reassign partitions, good and bad": lambda admin: {
        f"{partition.topic}-{partition.partition}": error and error.__name__
        for partition, error in admin.alter_partition_reassignments(
            {
                TopicPartition(TOPIC, 0): [1],
                TopicPartition(TOPIC, 1): [1, 7],
                TopicPartition(TOPIC, 2): None,
                TopicPartition("kp-unknown", 0): [1],
            }
        ).items()
    },
    "elect leaders, preferred and unclean": lambda admin: [
        admin.elect_leaders(kind, {TOPIC: [0, 9]}, raise_errors=False) for kind in (0, 1)
    ],
    "update features, as they are": lambda admin: admin.update_features({"group.version": 1}),
    "update features, too high": lambda admin: admin.update_features({"group.version": 99}),
    "store a scram credential": lambda admin: admin.alter_user_scram_credentials(
        [kafka.admin.UserScramCredentialUpsertion("kp-user", kafka.admin.ScramMechanism.SCRAM_SHA_256, b"secret")]
    ),
    "describe scram credentials": lambda admin: {
        user: [bool(found["error"]), found["credential_infos"]]
        for user, found in admin.describe_user_scram_credentials(["kp-user", "kp-nobody"]).items()
    },
    "delete a scram credential": lambda admin: admin.alter_user_scram_credentials(
        [kafka.admin.UserScramCredentialDeletion("kp-user", kafka.admin.ScramMechanism.SCRAM_SHA_256)]
    ),
    "describe acls without an authorizer": lambda admin: admin.describe_acls(
        kafka.admin.ACLFilter(
            None,
            None,
            kafka.admin.ACLOperation.ANY,
            kafka.admin.ACLPermissionType.ANY,
            kafka.admin.ResourcePatternFilter(
                kafka.admin.ResourceType.ANY, None, kafka.admin.ACLResourcePatternType.ANY
            ),
        )
    ),
    "delete topics, good and bad": lambda admin: admin.delete_topics([TOPIC, "kp-unknown"], raise_errors=False),
    "delete an unknown topic": lambda admin: admin.delete_topics(["kp-unknown"]),
}


def _dicts(value: Any) -> list[dict[str, Any]]:
    found = value if isinstance(value, list) else list(value.values()) if isinstance(value, dict) else []
    return [each for each in found if isinstance(each, dict)]


for title, step in STEPS.items():

    @call(f"kafka-python: {title}")
    def run(subject: Subject, step: Callable[[Any], object] = step) -> object:
        return step(subject.kafka_python)
