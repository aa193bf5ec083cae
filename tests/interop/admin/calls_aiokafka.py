"""aiokafka's admin calls, good and bad. The import of this module registers them in `calls.CALLS`."""

from collections.abc import Awaitable, Callable
from typing import Any

from aiokafka import TopicPartition
from aiokafka.admin import NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from tests.interop.admin.calls import Subject, call

TOPIC = "aio-a"


def _topic(**configs: str) -> ConfigResource:
    return ConfigResource(ConfigResourceType.TOPIC, TOPIC, configs=configs)


STEPS: dict[str, Callable[[Any], Awaitable[object]]] = {
    "create topics, good and bad": lambda admin: admin.create_topics([NewTopic(TOPIC, 2, 1), NewTopic("aio/b", 1, 1)]),
    "create a topic that exists, validate only": lambda admin: admin.create_topics(
        [NewTopic(TOPIC, 2, 1)], validate_only=True
    ),
    "create partitions": lambda admin: admin.create_partitions({TOPIC: NewPartitions(3)}),
    "create fewer partitions": lambda admin: admin.create_partitions({TOPIC: NewPartitions(1)}),
    "describe topics": lambda admin: admin.describe_topics([TOPIC, "aio-unknown"]),
    "describe the cluster": lambda admin: admin.describe_cluster(),
    "describe configs": lambda admin: admin.describe_configs([_topic()], include_synonyms=True),
    "alter configs": lambda admin: admin.alter_configs([_topic(**{"retention.ms": "55555"})]),
    "alter configs, unknown key": lambda admin: admin.alter_configs([_topic(**{"no.such.key": "55555"})]),
    "find a coordinator": lambda admin: admin.find_coordinator("aio-group"),
    "list groups": lambda admin: admin.list_consumer_groups(),
    "describe an unknown group": lambda admin: admin.describe_consumer_groups(["aio-nobody"]),
    "offsets of an unknown group": lambda admin: admin.list_consumer_group_offsets("aio-nobody"),
    "delete records of an empty partition": lambda admin: admin.delete_records(
        {TopicPartition(TOPIC, 0): RecordsToDelete(before_offset=0)}
    ),
    "delete records beyond the end": lambda admin: admin.delete_records(
        {TopicPartition(TOPIC, 0): RecordsToDelete(before_offset=10)}
    ),
    "delete topics, good and bad": lambda admin: admin.delete_topics([TOPIC, "aio-unknown"]),
    "list topics at the end": lambda admin: _sorted_topics(admin),
}


async def _sorted_topics(admin: Any) -> object:
    return sorted(name for name in await admin.list_topics() if name.startswith("aio"))


for title, step in STEPS.items():

    @call(f"aiokafka: {title}")
    def run(subject: Subject, step: Callable[[Any], Awaitable[object]] = step) -> object:
        return subject.aiokafka(step)
