"""Evidence of later leadership terms in the remote metadata."""

from typing import Final

from protocol.ids import LeaderEpoch
from storage.tiered.remote_metadata import KnownSegments
from storage.tiered.segment_metadata import RemoteSegment

NO_EPOCH: Final = LeaderEpoch(-1)


def is_of_later_term(segment: RemoteSegment, leader_epoch: LeaderEpoch) -> bool:
    """Whether a segment holds records of a leader after `leader_epoch`: only that leader or its successors judge it."""
    return segment.leader_epochs[-1].epoch > leader_epoch


def latest_epoch(known: KnownSegments) -> LeaderEpoch:
    """Return the latest leader epoch in any segment, -1 without segments. Examines the newest and the unfinished."""
    found = (LeaderEpoch(segment.leader_epochs[-1].epoch) for segment in (*known.newest(), *known.unfinished()))
    return max(found, default=NO_EPOCH)
