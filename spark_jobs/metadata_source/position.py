"""The position of a reader in the metadata log of a cluster, as stored in Spark's checkpoints.

The epoch and the cluster id distinguish a log from another one with the same offsets.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from protocol.ids import LeaderEpoch

NO_EPOCH: Final = LeaderEpoch(-1)


class InvalidPosition(ValueError):
    """The JSON is not a position; the message is one sentence."""


class MetadataPosition(NamedTuple):
    """`offset` of the next record, and leader `epoch` of the record before it (-1 at offset 0)."""

    offset: int
    epoch: LeaderEpoch
    cluster_id: str

    def to_json(self) -> dict[str, object]:
        """Return the JSON fields of Spark's checkpoint."""
        return {"offset": self.offset, "epoch": self.epoch, "clusterId": self.cluster_id}

    @classmethod
    def from_json(cls, fields: Mapping[str, object]) -> "MetadataPosition":
        """Parse the JSON fields. Raises InvalidPosition."""
        offset, epoch, cluster_id = fields.get("offset"), fields.get("epoch"), fields.get("clusterId")
        if not isinstance(offset, int) or not isinstance(epoch, int) or not isinstance(cluster_id, str):
            raise InvalidPosition(f"{dict(fields)} is not a position in {{offset, epoch, clusterId}}")
        return cls(offset, LeaderEpoch(epoch), cluster_id)
