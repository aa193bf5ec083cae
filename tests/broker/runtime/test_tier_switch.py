"""A broker does not start without remote storage while topics keep segments there."""

import pytest

from broker.config.errors import ConfigError
from broker.metadata.config_image import ResourceType
from broker.metadata.image import EMPTY_IMAGE
from broker.runtime.tier_switch import check_nothing_is_remote
from protocol.messages.metadata_records import ConfigRecord
from tests.broker.metadata.images import image_of


def record(topic: str, value: str, kind: ResourceType = ResourceType.TOPIC) -> ConfigRecord:
    return ConfigRecord(kind, topic, "remote.storage.enable", value)


def test_where_nothing_is_remote_nothing_is_in_the_way() -> None:
    check_nothing_is_remote(EMPTY_IMAGE)
    check_nothing_is_remote(
        image_of(
            [
                record("off", "false"),
                record("__consumer_offsets", "true"),
                record("no-topic", "true", ResourceType.GROUP),
                ConfigRecord(ResourceType.TOPIC, "other", "retention.ms", "1"),
            ]
        )
    )


def test_a_topic_that_is_says_which_and_what_to_do() -> None:
    with pytest.raises(ConfigError, match=r"^remote\.log\.storage\.system\.enable must stay on .* as a: delete them"):
        check_nothing_is_remote(image_of([record("a", "true")]))
    with pytest.raises(ConfigError, match="as a and 2 more: "):
        check_nothing_is_remote(image_of([record(name, "True") for name in "cba"]))
