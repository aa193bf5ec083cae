"""Checker of client observations of a replicated topic, in the terms of Jepsen's Kafka tests. Pure.

The checker consumes events as they happen and keeps 21 bytes per record, not the records: per offset the record's
identity, per sequence number its offset and the consumers that read it. The final reading of the whole log decides:
a record that it lacks is lost.

Permitted losses (acks=1, unclean elections) must be suffixes that a leader of a later epoch truncated: at the lost
record's offset the remaining log has a record of a later epoch, or it ends below. An acknowledgement does not name its
epoch. For a record that no consumer read, the time decides: the record was acknowledged before the later epoch was
seen, or while its old leader could not yet know of it (`zombie_ms`).

Besides consumers, which read every record once, rereaders repeatedly read the log from its start. In a bounded log,
records below the final log start offset may be missing. A log start offset never decreases.
"""

from array import array
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from tests.chaos.events import Acked, Began, Ended, Failed, Polled, Renumbered, Strange, Truncated

UNKNOWN = -1
EXAMPLES = 10
_UNKNOWN_BYTES = (-1).to_bytes(8, "little", signed=True)

# Flags of a record; consumer flags start at _SEEN.
_ACKED, _FAILED, _FINAL, _SEEN = 1, 2, 4, 8
CONSUMERS_MAX = 5
_OR = {bit: bytes(value | bit for value in range(256)) for bit in (1 << n for n in range(8))}


class Anomaly(StrEnum):
    """Violations. The first six are Jepsen's; the others are guarantees that those do not cover."""

    LOST_WRITE = "lost-write"  # acknowledged, but not in the log
    DUPLICATE = "duplicate"  # the same record at two offsets
    INCONSISTENT_OFFSETS = "inconsistent-offsets"  # two records at one offset
    NONMONOTONIC_POLL = "nonmonotonic-poll"  # a consumer received an offset again, or a smaller one
    POLL_SKIP = "poll-skip"  # a consumer received a later record without an earlier one
    UNSEEN = "unseen"  # acknowledged, but not received by some consumer

    REORDERED = "reordered"  # the log has a producer's records in another order than sent
    UNKNOWN_RECORD = "unknown-record"  # no producer sent the record
    EPOCH_REGRESSION = "epoch-regression"  # leader epochs decrease along the log
    TRUNCATION = "truncation"  # a consumer's log was truncated though no loss is permitted
    UNDETECTED_TRUNCATION = "undetected-truncation"  # a consumer read truncated records and got no truncation error
    HOLE = "hole"  # the final log lacks an offset, or has it twice
    LOG_START = "log-start"  # an unbounded log starts after 0, or a log start offset decreased


class Rules(NamedTuple):
    """Guarantees: no record is lost, or (`lossy`) only records that leaders of later epochs never had.

    A `bounded` log loses its beginning to retention and DeleteRecords. In a `gapless` log every offset from start to
    end holds exactly one readable record.
    """

    lossy: bool = False
    idempotent: bool = True  # otherwise a client may send a record twice, so that it is duplicated and reordered
    zombie_ms: int = 30_000  # how long after an election an old leader may still acknowledge
    bounded: bool = False
    gapless: bool = False


@dataclass
class Findings:
    """The result: counts of anomalies, examples, and other counts."""

    counts: Counter[Anomaly] = field(default_factory=Counter)
    examples: dict[Anomaly, list[str]] = field(default_factory=lambda: defaultdict(list))
    acknowledged: int = 0
    failed: int = 0
    permitted_losses: int = 0
    # Duplicates of producers without idempotence or after a change of producer epoch, and the reordering they cause.
    permitted_repeats: int = 0
    loss_windows: int = 0  # truncations (partition and later epoch) that caused the permitted losses
    truncations: Counter[int] = field(default_factory=Counter)  # seen, by consumer
    failures: Counter[str] = field(default_factory=Counter)  # records given up, by reason
    passes: int = 0  # completed readings of a partition by rereaders
    reread: int = 0  # records received by rereaders
    kept: int = 0  # offsets of the final log

    _last_place: dict[Anomaly, tuple[int, int]] = field(default_factory=dict)

    def add(self, anomaly: Anomaly, example: str, place: tuple[int, int] | None = None) -> None:
        """Count an anomaly. Keep one example of consecutive anomalies at `place` (a partition and an offset in it)."""
        self.counts[anomaly] += 1
        last = self._last_place.get(anomaly)
        if place is not None:
            self._last_place[anomaly] = place
            if last in (place, (place[0], place[1] - 1)):
                return
        if len(self.examples[anomaly]) < EXAMPLES:
            self.examples[anomaly].append(example)

    @property
    def is_clean(self) -> bool:
        return not +self.counts


class _Repeat(NamedTuple):
    """A record that is in the log again, or records in another order than sent, from `sequence` on."""

    anomaly: Anomaly
    example: str
    place: tuple[int, int]
    producer: int
    sequence: int


class _Log:
    """A partition's records and leader epochs by offset."""

    def __init__(self) -> None:
        self.identities: array[int] = array("q")
        self.epochs: array[int] = array("i")
        self.final_start = 0
        self.final_end: int | None = None  # set once the final reading is complete
        self.next_final = 0  # offset of the final reading
        self.latest_start = 0  # highest log start offset seen
        self.first_seen_ms: dict[int, int] = {}  # of each epoch
        self.displaced: dict[int, int] = {}  # identity -> epoch of records whose offset holds another record now

    def reserve(self, end: int) -> None:
        missing = end - len(self.identities)
        if missing > 0:
            self.identities.extend(array("q", [UNKNOWN]) * missing)
            self.epochs.extend(array("i", [UNKNOWN]) * missing)

    def epoch_of(self, identity: int, offset: int) -> int:
        """Return the epoch of a record that is or was at the offset."""
        if self.identities[offset] == identity:
            return self.epochs[offset]
        return self.displaced.get(identity, UNKNOWN)


class _Writes:
    """Records of one producer in one partition, by sequence number."""

    def __init__(self) -> None:
        self.offsets: array[int] = array("q")
        self.flags = bytearray()
        self._ack_ends: array[int] = array("q")
        self._ack_times_ms: array[int] = array("q")

    def mark(self, sequence: int, count: int, bit: int) -> None:
        end = sequence + count
        missing = end - len(self.flags)
        if missing > 0:
            self.flags.extend(bytes(missing))
            self.offsets.extend(array("q", [UNKNOWN]) * missing)
        self.flags[sequence:end] = self.flags[sequence:end].translate(_OR[bit])

    def note_ack(self, end: int, time_ms: int) -> None:
        if not self._ack_ends or end > self._ack_ends[-1]:
            self._ack_ends.append(end)
            self._ack_times_ms.append(time_ms)

    def acked_ms(self, sequence: int) -> int:
        """Return when the record, or one sent after it, was acknowledged."""
        at = bisect_right(self._ack_ends, sequence)
        return self._ack_times_ms[min(at, len(self._ack_times_ms) - 1)]

    def where(self, is_wanted: bytes) -> Iterator[int]:
        """Yield sequence numbers whose flags are set in the table."""
        chosen = self.flags.translate(is_wanted)
        at = chosen.find(1)
        while at >= 0:
            yield at
            at = chosen.find(1, at + 1)


def _table(is_wanted: Callable[[int], bool]) -> bytes:
    return bytes(is_wanted(flags) for flags in range(256))


_IS_MISSING = _table(lambda flags: flags & (_ACKED | _FINAL) == _ACKED)
_IS_ORPHAN = _table(lambda flags: flags != 0 and not flags & (_ACKED | _FAILED))


class Checker:
    """Call `acked`, `failed`, `polled`, `strange` and `truncated` during the run, then `final`, then `verdict`.

    Producers and consumers are numbered from 0. Rereaders, which also have `began` and `ended`, are numbered after the
    consumers.
    """

    def __init__(self, partitions: int, producers: int, consumers: int, rules: Rules, rereaders: int = 0) -> None:
        readers = consumers + rereaders
        assert readers <= CONSUMERS_MAX, f"the flags hold at most {CONSUMERS_MAX} consumers"
        self.rules = rules
        self.findings = Findings()
        self._logs = [_Log() for _ in range(partitions)]
        self._writes = [[_Writes() for _ in range(partitions)] for _ in range(producers)]
        self._consumers = range(consumers)
        self._last = [[-1] * partitions for _ in range(readers)]
        self._gaps: list[tuple[int, int, int, int]] = []  # consumer, partition, first, end
        self._resumed: dict[tuple[int, int], int] = {}  # lowest offset a consumer was sent back to
        self._repeated: set[tuple[int, int]] = set()  # partition, identity
        self._repeats: list[_Repeat] = []
        self._renumbered: dict[tuple[int, int], list[range]] = defaultdict(list)  # by producer and partition
        self._contradicted: set[tuple[int, int]] = set()  # partition, offset
        self._final_epoch = [UNKNOWN] * partitions
        self._final_sequence = [[-1] * partitions for _ in range(producers)]

    # Events

    def acked(self, producer: int, event: Acked) -> None:
        writes = self._writes[producer][event.partition]
        writes.mark(event.sequence, event.length, _ACKED)
        self.findings.acknowledged += event.length
        if self.rules.lossy:
            writes.note_ack(event.sequence + event.length, event.time_ms)
        if event.offset >= 0:
            self._place(event.partition, event.offset, event.length, producer, event.sequence, UNKNOWN, final=False)

    def failed(self, producer: int, event: Failed) -> None:
        self._writes[producer][event.partition].mark(event.sequence, event.length, _FAILED)
        self.findings.failed += event.length
        self.findings.failures[event.reason] += event.length

    def renumbered(self, producer: int, event: Renumbered) -> None:
        permitted = range(event.sequence, event.sequence + event.length)
        self._renumbered[producer, event.partition].append(permitted)

    def polled(self, consumer: int, event: Polled) -> None:
        if not self._is_sane(event):
            return
        self._move(consumer, event)
        if consumer not in self._consumers:
            self.findings.reread += event.length
        self._logs[event.partition].first_seen_ms.setdefault(event.epoch, event.time_ms)
        self._observe(event, _SEEN << consumer)

    def strange(self, event: Strange) -> None:
        self.findings.add(Anomaly.UNKNOWN_RECORD, f"partition {event.partition} offset {event.offset}: {event.what}")

    def truncated(self, consumer: int, event: Truncated) -> None:
        key = consumer, event.partition
        self.findings.truncations[consumer] += 1
        self._resumed[key] = min(event.resumed_at, self._resumed.get(key, event.resumed_at))
        self._last[consumer][event.partition] = event.resumed_at - 1
        if not self.rules.lossy:
            where = f"consumer {consumer} partition {event.partition} at {event.position}"
            self.findings.add(Anomaly.TRUNCATION, f"{where} was sent back to {event.resumed_at}")

    def began(self, reader: int, event: Began) -> None:
        """Record that a rereader restarts at the log start."""
        self._note_start(event)
        self._last[reader][event.partition] = event.at - 1

    def ended(self, _reader: int, _event: Ended) -> None:
        """Record that a rereader reached the log end offset of its start."""
        self.findings.passes += 1

    def final(self, event: Polled | Began | Ended) -> None:
        """Record a part of the final reading, from log start to log end."""
        if event.partition >= len(self._logs) or (isinstance(event, Polled) and not self._is_sane(event)):
            return
        log = self._logs[event.partition]
        match event:
            case Began():
                self._begin_final(log, event)
            case Ended():
                self._check_next(log, event.partition, event.end)
                log.final_end = event.end
                self.findings.kept += event.end - log.final_start
            case Polled():
                self._check_next(log, event.partition, event.offset)
                log.next_final = event.offset + event.length
                self._check_order(event)
                self._observe(event, _FINAL)

    def _begin_final(self, log: _Log, event: Began) -> None:
        if event.at < log.latest_start:
            where = f"partition {event.partition} begins at {event.at}"
            self.findings.add(Anomaly.LOG_START, f"{where}, and began at {log.latest_start} before")
        self._note_start(event)
        log.final_start = log.next_final = event.at

    def _note_start(self, event: Began) -> None:
        log = self._logs[event.partition]
        log.latest_start = max(log.latest_start, event.at)
        if event.at > 0 and not self.rules.bounded:
            self.findings.add(Anomaly.LOG_START, f"partition {event.partition} begins at {event.at}")

    def _check_next(self, log: _Log, partition: int, offset: int) -> None:
        if self.rules.gapless and offset != log.next_final:
            self.findings.add(Anomaly.HOLE, f"partition {partition}: read offset {offset}, expected {log.next_final}")

    def lag(self) -> int:
        """Return the consumers' total lag behind the final reading."""
        ends = [log.final_end or 0 for log in self._logs]
        consumers = (self._last[consumer] for consumer in self._consumers)
        return sum(max(0, end - last - 1) for each in consumers for end, last in zip(ends, each, strict=True))

    @property
    def records(self) -> int:
        """Return how many offsets are known."""
        return sum(len(log.identities) for log in self._logs)

    def _is_sane(self, event: Polled) -> bool:
        if event.producer < len(self._writes) and event.partition < len(self._logs):
            return True
        self.strange(Strange(event.time_ms, event.partition, event.offset, f"of producer {event.producer}"))
        return False

    def _observe(self, event: Polled, bit: int) -> None:
        self._writes[event.producer][event.partition].mark(event.sequence, event.length, bit)
        place = event.partition, event.offset, event.length, event.producer, event.sequence, event.epoch
        self._place(*place, final=bit == _FINAL)

    def _move(self, consumer: int, event: Polled) -> None:
        """Advance a consumer's position, checking for repeated and skipped records."""
        last = self._last[consumer][event.partition]
        where = f"consumer {consumer} partition {event.partition}: {event.offset} after {last}"
        if event.offset <= last:
            self.findings.add(Anomaly.NONMONOTONIC_POLL, where)
        elif event.offset > last + 1:
            self._gaps.append((consumer, event.partition, last + 1, event.offset))
        self._last[consumer][event.partition] = event.offset + event.length - 1

    def _check_order(self, event: Polled) -> None:
        if event.epoch < self._final_epoch[event.partition]:
            was = self._final_epoch[event.partition]
            where = f"partition {event.partition} offset {event.offset}"
            self.findings.add(Anomaly.EPOCH_REGRESSION, f"{where}: epoch {event.epoch} after {was}")
        self._final_epoch[event.partition] = event.epoch
        before = self._final_sequence[event.producer][event.partition]
        if event.sequence <= before:
            where = f"producer {event.producer} partition {event.partition} offset {event.offset}"
            example = f"{where}: sequence {event.sequence} after {before}"
            place = event.partition, event.offset
            self._note_repeat(_Repeat(Anomaly.REORDERED, example, place, event.producer, event.sequence))
        self._final_sequence[event.producer][event.partition] = event.sequence + event.length - 1

    # Records by offset

    def _place(
        self, partition: int, offset: int, count: int, producer: int, sequence: int, epoch: int, *, final: bool
    ) -> None:
        log, first = self._logs[partition], producer << 40 | sequence
        log.reserve(offset + count)
        here = slice(offset, offset + count)
        identities, epochs = array("q", range(first, first + count)), array("i", [epoch]) * count
        known = log.identities[here]
        if known.tobytes() == _UNKNOWN_BYTES * count:
            log.identities[here], log.epochs[here] = identities, epochs
        elif known != identities or (epoch != UNKNOWN and log.epochs[here] != epochs):
            for each in range(count):
                self._settle(partition, offset + each, first + each, epoch, final=final)
        self._place_sequences(partition, offset, count, producer, sequence)

    def _settle(self, partition: int, offset: int, identity: int, epoch: int, *, final: bool) -> None:
        """Place a record at an offset that may hold a known record."""
        log = self._logs[partition]
        known, known_epoch = log.identities[offset], log.epochs[offset]
        contradicts = epoch == known_epoch if known != identity else epoch != known_epoch
        if known == UNKNOWN:
            log.identities[offset], log.epochs[offset] = identity, epoch
        elif contradicts and UNKNOWN not in (epoch, known_epoch):
            self._report_conflict(partition, offset, (known, known_epoch), (identity, epoch))
        elif known == identity:
            log.epochs[offset] = max(epoch, known_epoch)
        elif not self.rules.lossy:
            self._report_conflict(partition, offset, (known, known_epoch), (identity, epoch))
        elif final or epoch > known_epoch:
            log.displaced[known] = known_epoch
            log.identities[offset], log.epochs[offset] = identity, epoch
        else:
            log.displaced[identity] = max(epoch, log.displaced.get(identity, UNKNOWN))

    def _report_conflict(self, partition: int, offset: int, *two: tuple[int, int]) -> None:
        """Report a conflict once per offset."""
        place = partition, offset
        if place in self._contradicted:
            return
        self._contradicted.add(place)
        both = " and ".join(f"{_description(identity)} of epoch {epoch}" for identity, epoch in two)
        self.findings.add(Anomaly.INCONSISTENT_OFFSETS, f"partition {partition} offset {offset}: {both}", place)

    def _place_sequences(self, partition: int, offset: int, count: int, producer: int, sequence: int) -> None:
        writes = self._writes[producer][partition]
        here = slice(sequence, sequence + count)
        wanted, known = array("q", range(offset, offset + count)), writes.offsets[here]
        if known == wanted:
            return
        if known.tobytes() == _UNKNOWN_BYTES * count:
            writes.offsets[here] = wanted
            return
        for each in range(count):
            before = writes.offsets[sequence + each]
            if before == UNKNOWN:
                writes.offsets[sequence + each] = offset + each
            elif before != offset + each:
                self._note_duplicate(partition, producer, sequence + each, before, offset + each)

    def _note_duplicate(self, partition: int, producer: int, sequence: int, one: int, other: int) -> None:
        """Note a duplicate once per record."""
        identity = producer << 40 | sequence
        if (partition, identity) not in self._repeated:
            self._repeated.add((partition, identity))
            where = f"partition {partition}: {_description(identity)} at {one} and {other}"
            self._note_repeat(_Repeat(Anomaly.DUPLICATE, where, (partition, other), producer, sequence))

    def _note_repeat(self, repeat: _Repeat) -> None:
        if self.rules.idempotent:
            self._repeats.append(repeat)
        else:
            self.findings.permitted_repeats += 1

    # Verdict

    def verdict(self, *, all_sent: bool = True) -> Findings:
        """Judge once, after the final reading. `all_sent`: producers have reported the outcome of every record."""
        losses: set[tuple[int, int]] = set()
        self._judge_repeats()
        for partition, log in enumerate(self._logs):
            for producer, by_partition in enumerate(self._writes):
                writes = by_partition[partition]
                self._judge_acked(partition, log, producer, writes, losses)
                self._judge_unseen(partition, producer, writes)
                if all_sent:
                    self._judge_unknown(partition, producer, writes)
        for gap in self._gaps:
            self._judge_gap(*gap)
        self.findings.loss_windows = len(losses)
        return self.findings

    def _judge_repeats(self) -> None:
        """Judge repeated records last: a consumer may receive one before its producer reports the new epoch."""
        for each in self._repeats:
            permitted = self._renumbered.get((each.producer, each.place[0]), ())
            if any(each.sequence in one for one in permitted):
                self.findings.permitted_repeats += 1
            else:
                self.findings.add(each.anomaly, each.example, each.place)

    def _judge_acked(
        self, partition: int, log: _Log, producer: int, writes: _Writes, losses: set[tuple[int, int]]
    ) -> None:
        """Judge records that are acknowledged and missing in the final log."""
        for sequence in writes.where(_IS_MISSING):
            place = partition, writes.offsets[sequence]
            if self.rules.bounded and place[1] < log.final_start:
                continue
            who = f"partition {partition} offset {place[1]}: {_description(producer << 40 | sequence)}"
            if log.final_end is None:
                self.findings.add(Anomaly.UNSEEN, f"{who}: the final reading is incomplete", place)
                continue
            cut = self._cut_by(log, producer, writes, sequence) if self.rules.lossy else None
            if cut is None:
                self.findings.add(Anomaly.LOST_WRITE, who, place)
            else:
                losses.add((partition, cut))
                self.findings.permitted_losses += 1
                self._judge_detection(partition, writes, sequence, who)

    def _cut_by(self, log: _Log, producer: int, writes: _Writes, sequence: int) -> int | None:
        """Return the later epoch whose leader never had the record, None if the loss is not permitted."""
        offset, end = writes.offsets[sequence], log.final_end
        if offset == UNKNOWN or not end:
            return None
        remaining = log.epochs[min(offset, end - 1)]
        lost = log.epoch_of(producer << 40 | sequence, offset)
        if lost != UNKNOWN:
            return remaining if lost < remaining else None
        begun_ms = log.first_seen_ms.get(remaining)
        if begun_ms is None or writes.acked_ms(sequence) <= begun_ms + self.rules.zombie_ms:
            return remaining
        return None

    def _judge_detection(self, partition: int, writes: _Writes, sequence: int, who: str) -> None:
        """Check that every consumer of a truncated record detected the truncation and reset at least that far."""
        for consumer in self._consumers:
            if not writes.flags[sequence] & _SEEN << consumer:
                continue
            resumed_at = self._resumed.get((consumer, partition))
            if resumed_at is None or resumed_at > writes.offsets[sequence]:
                place = partition, writes.offsets[sequence]
                self.findings.add(Anomaly.UNDETECTED_TRUNCATION, f"consumer {consumer}, {who}", place)

    def _judge_unseen(self, partition: int, producer: int, writes: _Writes) -> None:
        """Judge records that are acknowledged and in the log, and that a consumer missed."""
        wanted = _ACKED | _FINAL
        everyone = wanted | sum(_SEEN << consumer for consumer in self._consumers)
        for sequence in writes.where(_table(lambda flags: flags & everyone != everyone and flags & wanted == wanted)):
            missed = [n for n in self._consumers if not writes.flags[sequence] & _SEEN << n]
            place = partition, writes.offsets[sequence]
            who = f"partition {partition} offset {place[1]}: {_description(producer << 40 | sequence)}"
            self.findings.add(Anomaly.UNSEEN, f"{who} by consumers {missed}", place)

    def _judge_unknown(self, partition: int, producer: int, writes: _Writes) -> None:
        """Judge records that were read, and that their producer neither had acknowledged nor gave up."""
        for sequence in writes.where(_IS_ORPHAN):
            who = _description(producer << 40 | sequence)
            self.findings.add(Anomaly.UNKNOWN_RECORD, f"partition {partition}: {who} was never sent")

    def _judge_gap(self, consumer: int, partition: int, first: int, end: int) -> None:
        """Judge a gap in a consumer's records: it is a skip where the log has records."""
        log = self._logs[partition]
        if self.rules.lossy and log.final_end is not None:
            end = min(end, log.final_end)
        known = range(first, min(end, len(log.identities)))
        missed = [at for at in known if self._is_missed(consumer, log, partition, at)]
        if missed:
            where = f"consumer {consumer} partition {partition}: {missed[0]} to {missed[-1]}, then {end}"
            self.findings.add(Anomaly.POLL_SKIP, where)

    def _is_missed(self, consumer: int, log: _Log, partition: int, offset: int) -> bool:
        """Whether the consumer missed the record. In a truncated log it may have skipped another one at the offset."""
        identity = log.identities[offset]
        if identity == UNKNOWN or not self.rules.lossy:
            return identity != UNKNOWN
        flags = self._writes[identity >> 40][partition].flags[identity & (1 << 40) - 1]
        return not flags & _SEEN << consumer


def _description(identity: int) -> str:
    return f"record {identity & (1 << 40) - 1} of producer {identity >> 40}"
