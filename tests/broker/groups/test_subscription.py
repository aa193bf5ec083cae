"""Parsing of consumers' subscriptions."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.groups.subscription import all_subscribed_topics, subscribed_topics
from tests.support.harnesses.group_harness import subscription


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_topics_are_read_from_every_version(version: int) -> None:
    assert subscribed_topics(subscription("t", "ü", version=version)) == frozenset({"t", "ü"})


def test_unknown_subscription_version_is_read_by_its_prefix() -> None:
    metadata = (99).to_bytes(2, "big") + subscription("t")[2:] + b"later fields"
    assert subscribed_topics(metadata) == frozenset({"t"})


@pytest.mark.parametrize(
    "metadata",
    [
        b"",
        b"\x00\x00",
        b"\xff\xff" + subscription("t")[2:],  # a negative version
        b"\x00\x00\x7f\xff\xff\xff",  # an impossible number of topics
        b"\x00\x00\xff\xff\xff\xff",
        b"\x00\x00\x00\x00\x00\x01\x00\x05abc",
        b"\x00\x00\x00\x00\x00\x01\xff\xff",
        b"\x00\x00\x00\x00\x00\x01\x00\x01\xff",
    ],
)
def test_metadata_without_subscription_is_unknown(metadata: bytes) -> None:
    assert subscribed_topics(metadata) is None


@given(st.binary(max_size=64))
def test_arbitrary_metadata_is_parsed_or_unknown(metadata: bytes) -> None:
    topics = subscribed_topics(metadata)
    assert topics is None or all(isinstance(topic, str) for topic in topics)


def test_one_unreadable_member_makes_the_groups_topics_unknown() -> None:
    assert all_subscribed_topics([subscription("a"), subscription("b")]) == frozenset({"a", "b"})
    assert all_subscribed_topics([subscription("a"), b"?"]) is None
    assert all_subscribed_topics([]) == frozenset()
