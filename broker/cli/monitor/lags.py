"""The lag of groups: log ends minus committed offsets."""

from collections.abc import Mapping, Sequence
from typing import Final

from broker.cli.diagnosis.facts import GroupFacts
from broker.cli.shared.offsets import LATEST, committed_offsets, list_offsets
from broker.client import Client, ClientError
from protocol.errors import KafkaError

GROUPS_MAX: Final = 50
"""Groups whose offsets one frame asks for. Further groups are shown without lag."""


def group_lags(client: Client, groups: Sequence[GroupFacts]) -> Mapping[str, int | None]:
    """Return the lag by group id, None where offsets or log ends are not known. Share groups have no such offsets."""
    committed = {}
    for group in [each for each in groups if each.type != "share"][:GROUPS_MAX]:
        try:
            committed[group.id] = {at: offset for at, (offset, _) in committed_offsets(client, group.id).items()}
        except (KafkaError, ClientError):
            client.forget()
    try:
        ends = list_offsets(client, {partition: LATEST for offsets in committed.values() for partition in offsets})
    except (KafkaError, ClientError):
        client.forget()
        return dict.fromkeys(committed)
    return {
        id: sum(max(0, ends[partition] - offset) for partition, offset in offsets.items() if partition in ends)
        for id, offsets in committed.items()
    }
