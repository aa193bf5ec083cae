"""Where a reader of the metadata log stands, and of which log: what Spark keeps in its checkpoints.

The epoch and the cluster's id tell a log from another one that happens to have the same offsets.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

NO_EPOCH: Final = -1


class InvalidPosition(ValueError):
    """One sentence about what is no position."""


class MetadataPosition(NamedTuple):
    """`offset` is that of the next record, `epoch` the leader epoch of the record before it (-1 at offset 0)."""

    offset: int
    epoch: int
    cluster_id: str

    def to_json(self) -> dict[str, object]:
        """As Spark stores it."""
        return {"offset": self.offset, "epoch": self.epoch, "clusterId": self.cluster_id}

    @classmethod
    def from_json(cls, fields: Mapping[str, object]) -> "MetadataPosition":
        """Raises InvalidPosition."""
        offset, epoch, cluster_id = fields.get("offset"), fields.get("epoch"), fields.get("clusterId")
        if not isinstance(offset, int) or not isinstance(epoch, int) or not isinstance(cluster_id, str):
            raise InvalidPosition(f"{dict(fields)} is not a position in {{offset, epoch, clusterId}}")
        return cls(offset, epoch, cluster_id)
