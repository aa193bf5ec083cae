"""Kafka's range assignor: per topic, contiguous ranges in the order of the member ids. Pure."""

from collections.abc import Mapping, Sequence

from storage.directories.checkpoints import TopicPartition


def assign_ranges(
    subscriptions: Mapping[str, Sequence[str]], partition_counts: Mapping[str, int]
) -> dict[str, list[TopicPartition]]:
    """Assign partitions to member ids; `subscriptions` are topics by member id. Skip topics without partitions."""
    assignment: dict[str, list[TopicPartition]] = {member: [] for member in subscriptions}
    for topic in sorted({topic for topics in subscriptions.values() for topic in topics}):
        members = sorted(member for member, topics in subscriptions.items() if topic in topics)
        each, extra = divmod(partition_counts.get(topic, 0), len(members))
        first = 0
        for index, member in enumerate(members):
            share = each + (index < extra)
            assignment[member] += [TopicPartition(topic, first + number) for number in range(share)]
            first += share
    return assignment
