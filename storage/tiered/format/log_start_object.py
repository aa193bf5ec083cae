"""Log start offset of a partition, stored beside its segments, so that a rebuild does not restore deleted records.

DeleteRecords may move the log start offset into the middle of a segment, which no other object records. The leader
writes the object from its periodic task, at most one interval late, and before it deletes segments below the offset.
Each leader epoch has its own object (see `epoch_stamped_objects.py`): a deposed leader writes under its older epoch.
The object is also the leader's claim: every leader but the first of a partition writes it when its term begins, even
for a log that starts at 0. A deposed leader finds the claim before it deletes anything (`term_fence.py`).
The value of the newest epoch counts even if it is lower: after an unclean election the new leader's log may end below
the former log start offset.
The last field is a checksum (`checked_json.py`). A damaged object is unreadable: its log start counts neither as a
lower nor as a higher one. Its epoch, which is in the key, counts.
"""

import json

from protocol.ids import BrokerId, LeaderEpoch
from protocol.lazy_dataclass import lazy_dataclass
from storage.checked_json import encode_checked, take_checksum
from storage.tiered.format.epoch_stamped_objects import EpochStampedObject
from storage.tiered.object_store import ObjectStore

LOG_START_STEM = "log-start"

_VERSION = 1


@lazy_dataclass(frozen=True, slots=True, kw_only=True)
class LogStart:
    """Record of one leader. `cluster_id` names the owner where several clusters share a bucket."""

    log_start_offset: int
    leader_epoch: LeaderEpoch
    cluster_id: str
    broker_id: BrokerId
    timestamp_ms: int


def encode_log_start(log_start: LogStart) -> bytes:
    document = {
        "version": _VERSION,
        "clusterId": log_start.cluster_id,
        "brokerId": log_start.broker_id,
        "leaderEpoch": log_start.leader_epoch,
        "logStartOffset": log_start.log_start_offset,
        "timestampMs": log_start.timestamp_ms,
    }
    return encode_checked(document)


def decode_log_start(content: bytes) -> LogStart:
    """Decode a log start object; one of an earlier release has no checksum. Raises ValueError."""
    document = json.loads(content)
    if not isinstance(document, dict) or not take_checksum(document):
        raise ValueError("not a log start object, or a damaged one: its checksum does not match")
    if document.get("version") != _VERSION:
        raise ValueError("the log start object has an unknown version")
    try:
        log_start = LogStart(
            log_start_offset=int(document["logStartOffset"]),
            leader_epoch=LeaderEpoch(int(document["leaderEpoch"])),
            cluster_id=str(document["clusterId"]),
            broker_id=BrokerId(int(document["brokerId"])),
            timestamp_ms=int(document["timestampMs"]),
        )
    except (KeyError, TypeError) as error:
        raise ValueError(f"the log start object lacks {error}") from error
    if log_start.log_start_offset < 0:
        raise ValueError(f"log start offset {log_start.log_start_offset} is negative")
    return log_start


def log_start_object(store: ObjectStore, directory: str) -> EpochStampedObject:
    """Return the object; `directory` is the key prefix of the partition, with a trailing slash."""
    return EpochStampedObject(store, directory + LOG_START_STEM)


def read_log_start(store: ObjectStore, directory: str) -> LogStart | None:
    """Return the newest leader's record, None if there is none. Raises ObjectStoreError, ValueError."""
    stamped = log_start_object(store, directory)
    found = stamped.read()
    if found is None:
        return None
    try:
        return decode_log_start(found.content)
    except ValueError as error:
        raise ValueError(f"{stamped.key(found.epoch)}: {error}") from error


def has_later_leader(object: EpochStampedObject, leader_epoch: LeaderEpoch) -> bool:
    """Whether a leader of a later epoch has written its object. Raises ObjectStoreError."""
    return any(epoch > leader_epoch for epoch in object.epochs())


class LogStartWriter:
    """Writer of one leader, for one partition and one leader epoch. Blocks; used by one thread at a time.

    `write` is called periodically and writes a changed offset at most every `interval_ms`. Objects of former leaders
    are looked up once; objects of later leaders before every urgent write, and once more after it, because a later
    leader claims its term at any moment. `is_deposed`: a later leader has written.
    """

    def __init__(
        self,
        store: ObjectStore,
        directory: str,
        *,
        leader_epoch: LeaderEpoch,
        cluster_id: str,
        broker_id: BrokerId,
        interval_ms: int,
    ) -> None:
        self._object = log_start_object(store, directory)
        self._leader_epoch = leader_epoch
        self._cluster_id = cluster_id
        self._broker_id = broker_id
        self._interval_ms = interval_ms
        self._older: bool | None = None
        self.is_deposed = False
        self._written: int | None = None
        self._not_before_ms = 0

    def write(self, log_start_offset: int, now_ms: int) -> bool:
        """Store the log start offset; return whether the store holds it now.

        False while a change must wait, and forever after a later leader has written: this leader is deposed. The first
        leader of a partition writes nothing while its log starts at 0. Raises ObjectStoreError; the next call retries.
        """
        if self._older is None:
            self._look()
        if self.is_deposed or log_start_offset == self._written:
            return not self.is_deposed
        if now_ms < self._not_before_ms:
            return False
        self._put(log_start_offset, now_ms)
        if self._older:
            self._object.remove_before(self._leader_epoch)
            self._older = False
        return True

    def write_now(self, log_start_offset: int, now_ms: int) -> bool:
        """Store the offset as `write`, without waiting for the interval, before records are deleted because of it.

        Look for later leaders after the write: of two leaders that write and then look, at least one sees the other.
        """
        self._not_before_ms = now_ms
        if not self.write(log_start_offset, now_ms):
            return False
        self.is_deposed = has_later_leader(self._object, self._leader_epoch)
        return not self.is_deposed

    def _look(self) -> None:
        """Look up the objects of other leaders."""
        epochs = self._object.epochs()
        self.is_deposed = bool(epochs) and epochs[-1] > self._leader_epoch
        self._written = None if epochs or self._leader_epoch > 0 else 0
        self._older = bool(epochs)

    def _put(self, log_start_offset: int, now_ms: int) -> None:
        said = LogStart(
            log_start_offset=log_start_offset,
            leader_epoch=self._leader_epoch,
            cluster_id=self._cluster_id,
            broker_id=self._broker_id,
            timestamp_ms=now_ms,
        )
        self._object.write(self._leader_epoch, encode_log_start(said))
        self._written, self._not_before_ms = log_start_offset, now_ms + self._interval_ms
