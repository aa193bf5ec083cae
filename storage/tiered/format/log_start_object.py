"""The log start offset of a partition, kept beside its segments: a rebuild must not bring deleted records back.

DeleteRecords may move the log start into the middle of a segment, and nothing else in the store would tell. The leader
writes the object from its regular task, so that it lags by one interval at most, and before segments below it are
deleted. It is one object per leader epoch (see `epoch_stamped_objects.py`): a deposed leader writes under its own older
epoch, and the value of the newest is the one that counts, though it may be lower: after an unclean election the new
leader's log need not reach where the old one's began.
"""

import json
from dataclasses import dataclass

from storage.tiered.format.epoch_stamped_objects import EpochStampedObject
from storage.tiered.object_store import ObjectStore

LOG_START_STEM = "log-start"

_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class LogStart:
    """What one leader said. `cluster_id` tells whose objects these are where several clusters use one bucket."""

    log_start_offset: int
    leader_epoch: int
    cluster_id: str
    broker_id: int
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
    return json.dumps(document, separators=(",", ":")).encode()


def decode_log_start(content: bytes) -> LogStart:
    """Raises ValueError for anything but what `encode_log_start` gives."""
    document = json.loads(content)
    if not isinstance(document, dict) or document.get("version") != _VERSION:
        raise ValueError("not a log start object, or of a version that is not known here")
    try:
        log_start = LogStart(
            log_start_offset=int(document["logStartOffset"]),
            leader_epoch=int(document["leaderEpoch"]),
            cluster_id=str(document["clusterId"]),
            broker_id=int(document["brokerId"]),
            timestamp_ms=int(document["timestampMs"]),
        )
    except (KeyError, TypeError) as error:
        raise ValueError(f"a log start object without {error}") from error
    if log_start.log_start_offset < 0:
        raise ValueError(f"a log start offset of {log_start.log_start_offset}")
    return log_start


def log_start_object(store: ObjectStore, directory: str) -> EpochStampedObject:
    """`directory` is the beginning of the keys of the partition's objects, with the slash at its end."""
    return EpochStampedObject(store, directory + LOG_START_STEM)


def read_log_start(store: ObjectStore, directory: str) -> LogStart | None:
    """What the newest leader said; None where none ever did. Raises ObjectStoreError, ValueError."""
    found = log_start_object(store, directory).read()
    return None if found is None else decode_log_start(found.content)


class LogStartWriter:
    """One leader's, for one partition and one leader epoch. Blocks, and is used by one thread at a time.

    `write` is called whenever the leader looks after the partition; it writes what changed, and not more often than
    every `interval_ms`. What leaders before left is looked up once; while there is nothing, and this one has nothing to
    say, every `interval_ms` again, since one that does not know yet that it is deposed may still speak. `is_deposed`: a
    later leader has written.
    """

    def __init__(
        self,
        store: ObjectStore,
        directory: str,
        *,
        leader_epoch: int,
        cluster_id: str,
        broker_id: int,
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
        self._is_silent = False
        self._look_again_ms = 0

    def write(self, log_start_offset: int, now_ms: int) -> bool:
        """Whether the store now says `log_start_offset`.

        False while a change must wait, and for good when there is an object of a later leader: this one is deposed.
        A log that begins at 0 and never had an object needs none. Raises ObjectStoreError; the next call tries again.
        """
        if self._older is None or (self._is_silent and now_ms >= self._look_again_ms):
            self._look()
            self._look_again_ms = now_ms + self._interval_ms
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
        """As `write`, without a wait: for when data is about to be deleted on the strength of it."""
        self._not_before_ms = now_ms
        return self.write(log_start_offset, now_ms)

    def _look(self) -> None:
        """What the leaders before left."""
        epochs = self._object.epochs()
        self.is_deposed = bool(epochs) and epochs[-1] > self._leader_epoch
        self._written = None if epochs else 0
        self._older = bool(epochs)
        self._is_silent = not epochs and self._leader_epoch > 0

    def _put(self, log_start_offset: int, now_ms: int) -> None:
        said = LogStart(
            log_start_offset=log_start_offset,
            leader_epoch=self._leader_epoch,
            cluster_id=self._cluster_id,
            broker_id=self._broker_id,
            timestamp_ms=now_ms,
        )
        self._object.write(self._leader_epoch, encode_log_start(said))
        self._is_silent = False
        self._written, self._not_before_ms = log_start_offset, now_ms + self._interval_ms
