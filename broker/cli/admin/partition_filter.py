"""Partition filters of `ottla get-offsets`: patterns of --topic-partitions, or --topic with --partitions."""

import re
from collections.abc import Callable, Sequence

import click

from broker.cli.shared.cluster_view import topic_pattern
from storage.directories.checkpoints import TopicPartition

PartitionFilter = Callable[[TopicPartition], bool]

_RULE = re.compile(r"(?P<topic>[^:,]*)(?::(?:(?P<one>[0-9]*)|(?:(?P<low>[0-9]*)-(?P<end>[0-9]*))))?")


def filter_of_rules(text: str) -> PartitionFilter:
    """Return the filter of comma-separated rules such as "t", "t:2", "t:0-3", "t:1-" and ":-2".

    A partition passes if any rule accepts it. The upper bound of a range is exclusive. Raises UsageError.
    """
    rules = [_rule(part) for part in text.split(",")]
    return lambda partition: any(accepts(partition) for accepts in rules)


def filter_of_options(topic: str | None, partitions: str | None) -> PartitionFilter:
    """Return the filter of --topic (a pattern) and --partitions ("0,2"). None means all. Raises UsageError."""
    wanted = None if topic is None else _pattern(topic, "--topic")
    try:
        ids = None if not partitions else {int(part) for part in partitions.split(",")}
    except ValueError as error:
        raise click.UsageError(f"--partitions {partitions}: use partition ids such as 0,1,2.") from error
    return lambda partition: (
        (wanted is None or wanted.fullmatch(partition.topic) is not None)
        and (ids is None or partition.partition in ids)
    )


def _rule(text: str) -> PartitionFilter:
    found = _RULE.fullmatch(text)
    if found is None:
        raise click.UsageError(
            f"--topic-partitions {text}: use TOPIC, TOPIC:N, TOPIC:LOW-END, TOPIC:LOW- or TOPIC:-END."
        )
    topic = _pattern(found["topic"], "--topic-partitions") if found["topic"] else None
    if found["one"]:
        ids: Sequence[int] | None = range(int(found["one"]), int(found["one"]) + 1)
    elif found["low"] or found["end"]:
        ids = range(int(found["low"] or 0), int(found["end"] or 2**31))
    else:
        ids = None
    return lambda partition: (
        (topic is None or topic.fullmatch(partition.topic) is not None) and (ids is None or partition.partition in ids)
    )


def _pattern(text: str, option: str) -> re.Pattern[str]:
    try:
        return topic_pattern(text)
    except ValueError as error:
        raise click.UsageError(f"{option}: {error}.") from error
