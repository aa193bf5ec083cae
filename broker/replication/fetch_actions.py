"""The actions that follow from a leader's answer to a fetch: plain data for the driver of a fetcher."""

from dataclasses import field
from typing import Generic, NamedTuple

from broker.replication.fetch_state import P, PartitionFetchState
from protocol.errors import ErrorCode
from protocol.lazy_dataclass import lazy_dataclass
from protocol.messages.fetch import PartitionData


class FetchedPartition(NamedTuple, Generic[P]):
    """Records, high watermark and log start offset to append to a replica."""

    followed: PartitionFetchState[P]
    data: PartitionData


class Truncation(NamedTuple, Generic[P]):
    """Records to remove from `offset` on, or all of them (`is_full`): the log is then empty and starts at `offset`."""

    followed: PartitionFetchState[P]
    offset: int
    is_full: bool = False


class AuxStateBuild(NamedTuple, Generic[P]):
    """A replica to restart behind the records that its leader has in remote storage only (KIP-405)."""

    followed: PartitionFetchState[P]
    leader_log_start: int


class FetchFailure(NamedTuple, Generic[P]):
    """An error code of the leader for a replica; reported for the first failure in a row."""

    followed: PartitionFetchState[P]
    code: int


@lazy_dataclass(slots=True)
class FetchActions(Generic[P]):
    """Actions to perform in any order. The replicas in `out_of_range` need both bounds of the leader's log.

    `complaint` describes an answer that is wrong as a whole.
    """

    appends: list[FetchedPartition[P]] = field(default_factory=list)
    truncations: list[Truncation[P]] = field(default_factory=list)
    builds: list[AuxStateBuild[P]] = field(default_factory=list)
    out_of_range: list[PartitionFetchState[P]] = field(default_factory=list)
    failures: list[FetchFailure[P]] = field(default_factory=list)
    complaint: str = ""


class LogBound(NamedTuple):
    """One bound of the leader's log, or an error code."""

    code: int
    offset: int


def complaint_about(code: int) -> str:
    """Describe an answer that is wrong as a whole, by its error code."""
    if not code:
        return "the answer does not fit the request"
    return f"error {code}" if code not in ErrorCode._value2member_map_ else ErrorCode(code).name
