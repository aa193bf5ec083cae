import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.primitives import Uuid, uuid_to_text
from storage.tiered.format.custom_metadata import CustomField, encode_custom_metadata
from storage.tiered.format.object_keys import ObjectKeys, ObjectSuffix, ParsedKey, segment_path
from storage.tiered.segment_metadata import RemoteSegmentId, TopicIdPartition
from tests.storage.tiered.sample_segments import PARTITION, SEGMENT_ID, segment

UUIDS = st.binary(min_size=16, max_size=16).map(Uuid)
TOPICS = st.text("abcZ09._-", min_size=1, max_size=30)


def test_key_has_prefix_topic_partition_start_offset_and_segment_id() -> None:
    keys = ObjectKeys("prefix")
    path = "topic1-lZ6vvmajTWKDBUTV6SQAtQ/42/00000000000000001000-adh9f8BMS4anaUnD8KWfWg"
    assert segment_path(segment(1)) == path
    assert keys.key(segment(1), ObjectSuffix.LOG) == f"prefix{path}.log"
    assert keys.key(segment(1), ObjectSuffix.INDEXES) == f"prefix{path}.indexes"
    assert keys.key(segment(1), ObjectSuffix.MANIFEST) == f"prefix{path}.rsm-manifest"
    assert keys.partition(PARTITION) == "prefixtopic1-lZ6vvmajTWKDBUTV6SQAtQ/42/"


@given(UUIDS, TOPICS, st.integers(0, 2**31 - 1), st.integers(0, 2**60), UUIDS, st.sampled_from(["", "a/", "t-", "x"]))
def test_key_is_parsed_from_its_end(
    topic_id: Uuid, topic: str, number: int, start: int, segment_id: Uuid, prefix: str
) -> None:
    keys = ObjectKeys(prefix)
    partition = TopicIdPartition(topic_id, topic, number)
    key = f"{keys.partition(partition)}{start:020d}-{uuid_to_text(segment_id)}.indexes"
    assert keys.parse(key) == ParsedKey(RemoteSegmentId(partition, segment_id), start, ObjectSuffix.INDEXES)
    assert keys.parse_partition(key) == partition


@pytest.mark.parametrize(
    "key",
    [
        "",
        "prefix",
        "topic1-lZ6vvmajTWKDBUTV6SQAtQ/42/00000000000000001000-adh9f8BMS4anaUnD8KWfWg.log",
        "prefixtopic1-lZ6vvmajTWKDBUTV6SQAtQ/42/00000000000000001000-adh9f8BMS4anaUnD8KWfWg.txt",
        "prefixtopic1-lZ6vvmajTWKDBUTV6SQAtQ/42/00000000000000001000-adh9f8BMS4anaUnD8KWfWg.log.tmp",
        "prefixtopic1-lZ6vvmajTWKDBUTV6SQAtQ/42/1000-adh9f8BMS4anaUnD8KWfWg.log",
        "prefixtopic1-lZ6vvmajTWKDBUTV6SQAtQ/042/00000000000000001000-adh9f8BMS4anaUnD8KWfWg.log",
        "prefixtopic1-lZ6vvmajTWKDBUTV6SQAtR/42/00000000000000001000-adh9f8BMS4anaUnD8KWfWg.log",
        "prefixtopic1-lZ6vvmajTWKDBUTV6SQAtQ/42/00000000000000001000-adh9f8BMS4anaUnD8KWfWh.log",
        "prefix-lZ6vvmajTWKDBUTV6SQAtQ/42/00000000000000001000-adh9f8BMS4anaUnD8KWfWg.log",
        "prefixtopic1-lZ6vvmajTWKDBUTV6SQAtQ/42/log-start-0000000005",
    ],
)
def test_foreign_keys_are_not_parsed(key: str) -> None:
    assert ObjectKeys("prefix").parse(key) is None


def test_partition_of_a_non_segment_object_is_parsed() -> None:
    key = "prefixtopic1-lZ6vvmajTWKDBUTV6SQAtQ/42/log-start-0000000005"
    assert ObjectKeys("prefix").parse_partition(key) == PARTITION
    assert ObjectKeys("prefix").parse_partition("prefixelsewhere/1/") is None


def test_custom_metadata_override_configured_prefix() -> None:
    moved = encode_custom_metadata({CustomField.OBJECT_PREFIX: "then/"})
    key = ObjectKeys("now/").key(segment(1, custom_metadata=moved), ObjectSuffix.MANIFEST)
    assert key == f"then/{segment_path(segment(1))}.rsm-manifest"
    named = encode_custom_metadata({CustomField.OBJECT_KEY: "elsewhere"})
    assert ObjectKeys("now/").key(segment(1, custom_metadata=named), ObjectSuffix.LOG) == "now/elsewhere.log"


def test_masked_prefix_is_not_shown() -> None:
    keys = ObjectKeys("secret/", mask_prefix=True)
    assert keys.shown(f"no object {keys.key(segment(1), ObjectSuffix.LOG)}").startswith("no object <prefix>/topic1-")
    assert ObjectKeys("open/").shown("no object open/x") == "no object open/x"
    assert uuid_to_text(SEGMENT_ID) in keys.shown(keys.key(segment(1), ObjectSuffix.LOG))
