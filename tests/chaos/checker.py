"""Judges what clients saw of a replicated topic, in the terms of Jepsen's Kafka tests; pure.

It is fed events as they come and keeps 21 bytes for each record, never the records: by offset who is there, by sequence
where it went and who saw it. In the end a reading of the whole log decides: what is not in it is lost.

Where losses are permitted (acks=1, unclean elections) they must be suffixes that a leader of a later epoch cut off: the
log that remains has, at the offset of each lost record, a record of a later epoch than the lost one, or ends below it.
An acknowledgement does not tell its epoch. For a record that nobody polled the moment stands in for it: it was
acknowledged before that later epoch was seen, or while its old leader could not have known yet (`zombie_ms`).

Beside consumers, which come to every record once, there may be rereaders, which begin again and again where the log
does. Where logs are bounded, what lies below the start of the log that remains is gone by right; a start never sinks.
"""

from array import array
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from tests.chaos.events import Acked, Began, Ended, Failed, Polled, Strange, Truncated

UNKNOWN = -1
EXAMPLES = 10
_UNKNOWN_BYTES = (-1).to_bytes(8, "little", signed=True)

# Bits of one record; consumers have those from _SEEN on.
_ACKED, _FAILED, _FINAL, _SEEN = 1, 2, 4, 8
CONSUMERS_MAX = 5
_OR = {bit: bytes(value | bit for value in range(256)) for bit in (1 << n for n in range(8))}


class Anomaly(StrEnum):
    """What must not be. The first six are Jepsen's; the others are promises that those do not cover."""

    LOST_WRITE = "lost-write"  # acknowledged, and not in the log
    DUPLICATE = "duplicate"  # one record at two offsets
    INCONSISTENT_OFFSETS = "inconsistent-offsets"  # two records at one offset
    NONMONOTONIC_POLL = "nonmonotonic-poll"  # a consumer was given an offset again, or a smaller one
    POLL_SKIP = "poll-skip"  # a consumer was not given a record, and then given a later one
    UNSEEN = "unseen"  # acknowledged, and some consumer never came to it

    REORDERED = "reordered"  # a producer's records are in the log in another order than it sent them
    UNKNOWN_RECORD = "unknown-record"  # nobody wrote this
    EPOCH_REGRESSION = "epoch-regression"  # leader epochs sink along the log
    TRUNCATION = "truncation"  # a consumer's log was cut though no loss is permitted
    UNDETECTED_TRUNCATION = "undetected-truncation"  # a consumer read what was cut off later, and was not told
    HOLE = "hole"  # the log that remains leaves out an offset, or has one twice
    LOG_START = "log-start"  # a log begins after 0 though it is not bounded, or began later before


class Rules(NamedTuple):
    """What was promised: nothing is lost, or (`lossy`) no more than what leaders of later epochs never had.

    A `bounded` log loses its beginning to retention and to those who ask for it. In a `gapless` one every offset from
    its start to its end is a record that can be read, once.
    """

    lossy: bool = False
    idempotent: bool = True  # else a client may send a record twice, so that it is there twice and out of order
    zombie_ms: int = 30_000  # how long after an election an old leader may still acknowledge
    bounded: bool = False
    gapless: bool = False


@dataclass
class Findings:
    """The verdict: how many of each, some examples in words, and what else was counted."""

    counts: Counter[Anomaly] = field(default_factory=Counter)
    examples: dict[Anomaly, list[str]] = field(default_factory=lambda: defaultdict(list))
    acknowledged: int = 0
    failed: int = 0
    permitted_losses: int = 0
    permitted_repeats: int = 0  # duplicates, and what they brought out of order, of producers without idempotence
    loss_windows: int = 0  # how many cuts (a partition and the epoch that cut it) those losses came from
    truncations: Counter[int] = field(default_factory=Counter)  # seen, by consumer
    failures: Counter[str] = field(default_factory=Counter)  # records given up, by reason
    passes: int = 0  # readings by rereaders that came to an end, of one partition each
    reread: int = 0  # records that they were given
    kept: int = 0  # offsets of the log that remains

    _last_place: dict[Anomaly, tuple[int, int]] = field(default_factory=dict)

    def add(self, anomaly: Anomaly, example: str, place: tuple[int, int] | None = None) -> None:
        """One more. Of a row of them at `place` (a partition and an offset in it) only the first is an example."""
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


class _Log:
    """One partition: who is at each offset, under which epoch."""

    def __init__(self) -> None:
        self.identities: array[int] = array("q")
        self.epochs: array[int] = array("i")
        self.final_start = 0
        self.final_end: int | None = None  # once the final reading came to the end
        self.next_final = 0  # offset of the final reading
        self.latest_start = 0  # that anybody heard of
        self.first_seen_ms: dict[int, int] = {}  # of each epoch
        self.displaced: dict[int, int] = {}  # identity -> epoch of records whose offset went to another

    def reserve(self, end: int) -> None:
        missing = end - len(self.identities)
        if missing > 0:
            self.identities.extend(array("q", [UNKNOWN]) * missing)
            self.epochs.extend(array("i", [UNKNOWN]) * missing)

    def epoch_of(self, identity: int, offset: int) -> int:
        """Of a record that is or was at the offset."""
        if self.identities[offset] == identity:
            return self.epochs[offset]
        return self.displaced.get(identity, UNKNOWN)


class _Writes:
    """What one producer wrote to one partition, by sequence."""

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
        """When it, or what was sent after it, was acknowledged."""
        at = bisect_right(self._ack_ends, sequence)
        return self._ack_times_ms[min(at, len(self._ack_times_ms) - 1)]

    def where(self, is_wanted: bytes) -> Iterator[int]:
        """Sequences whose flags have a 1 in the table."""
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
    """Feed it `acked`, `failed`, `polled`, `strange`, `truncated` while the run lasts, then `final`, then `verdict`.

    Producers and consumers are numbered from 0; rereaders, of which there are `began` and `ended` too, go on behind the
    consumers.
    """

    def __init__(self, partitions: int, producers: int, consumers: int, rules: Rules, rereaders: int = 0) -> None:
        readers = consumers + rereaders
        assert readers <= CONSUMERS_MAX, f"at most {CONSUMERS_MAX} consumers have a bit"
        self.rules = rules
        self.findings = Findings()
        self._logs = [_Log() for _ in range(partitions)]
        self._writes = [[_Writes() for _ in range(partitions)] for _ in range(producers)]
        self._consumers = range(consumers)
        self._last = [[-1] * partitions for _ in range(readers)]
        self._gaps: list[tuple[int, int, int, int]] = []  # consumer, partition, first, end
        self._resumed: dict[tuple[int, int], int] = {}  # lowest offset a consumer was sent back to
        self._repeated: set[tuple[int, int]] = set()  # partition, identity
        self._contradicted: set[tuple[int, int]] = set()  # partition, offset
        self._final_epoch = [UNKNOWN] * partitions
        self._final_sequence = [[-1] * partitions for _ in range(producers)]

    # Events

    def acked(self, producer: int, told: Acked) -> None:
        writes = self._writes[producer][told.partition]
        writes.mark(told.sequence, told.length, _ACKED)
        self.findings.acknowledged += told.length
        if self.rules.lossy:
            writes.note_ack(told.sequence + told.length, told.time_ms)
        if told.offset >= 0:
            self._place(told.partition, told.offset, told.length, producer, told.sequence, UNKNOWN, final=False)

    def failed(self, producer: int, told: Failed) -> None:
        self._writes[producer][told.partition].mark(told.sequence, told.length, _FAILED)
        self.findings.failed += told.length
        self.findings.failures[told.reason] += told.length

    def polled(self, consumer: int, told: Polled) -> None:
        if not self._is_sane(told):
            return
        self._move(consumer, told)
        if consumer not in self._consumers:
            self.findings.reread += told.length
        self._logs[told.partition].first_seen_ms.setdefault(told.epoch, told.time_ms)
        self._observe(told, _SEEN << consumer)

    def strange(self, told: Strange) -> None:
        self.findings.add(Anomaly.UNKNOWN_RECORD, f"partition {told.partition} offset {told.offset}: {told.what}")

    def truncated(self, consumer: int, told: Truncated) -> None:
        key = consumer, told.partition
        self.findings.truncations[consumer] += 1
        self._resumed[key] = min(told.resumed_at, self._resumed.get(key, told.resumed_at))
        self._last[consumer][told.partition] = told.resumed_at - 1
        if not self.rules.lossy:
            where = f"consumer {consumer} partition {told.partition} at {told.position}"
            self.findings.add(Anomaly.TRUNCATION, f"{where} was sent back to {told.resumed_at}")

    def began(self, reader: int, told: Began) -> None:
        """A rereader goes back to the start of the log."""
        self._note_start(told)
        self._last[reader][told.partition] = told.at - 1

    def ended(self, _reader: int, _told: Ended) -> None:
        """A rereader came to where the log ended when it began."""
        self.findings.passes += 1

    def final(self, told: Polled | Began | Ended) -> None:
        """A piece of the reading, from the beginning to the end, of the log that remains."""
        if told.partition >= len(self._logs) or (isinstance(told, Polled) and not self._is_sane(told)):
            return
        log = self._logs[told.partition]
        match told:
            case Began():
                self._begin_final(log, told)
            case Ended():
                self._check_next(log, told.partition, told.end)
                log.final_end = told.end
                self.findings.kept += told.end - log.final_start
            case Polled():
                self._check_next(log, told.partition, told.offset)
                log.next_final = told.offset + told.length
                self._check_order(told)
                self._observe(told, _FINAL)

    def _begin_final(self, log: _Log, told: Began) -> None:
        if told.at < log.latest_start:
            where = f"partition {told.partition} begins at {told.at}"
            self.findings.add(Anomaly.LOG_START, f"{where}, and began at {log.latest_start} before")
        self._note_start(told)
        log.final_start = log.next_final = told.at

    def _note_start(self, told: Began) -> None:
        log = self._logs[told.partition]
        log.latest_start = max(log.latest_start, told.at)
        if told.at > 0 and not self.rules.bounded:
            self.findings.add(Anomaly.LOG_START, f"partition {told.partition} begins at {told.at}")

    def _check_next(self, log: _Log, partition: int, offset: int) -> None:
        if self.rules.gapless and offset != log.next_final:
            self.findings.add(Anomaly.HOLE, f"partition {partition}: {offset} came, and not {log.next_final}")

    def lag(self) -> int:
        """How many offsets of the final reading lie before consumers, together."""
        ends = [log.final_end or 0 for log in self._logs]
        consumers = (self._last[consumer] for consumer in self._consumers)
        return sum(max(0, end - last - 1) for each in consumers for end, last in zip(ends, each, strict=True))

    @property
    def records(self) -> int:
        """How many offsets it knows of."""
        return sum(len(log.identities) for log in self._logs)

    def _is_sane(self, told: Polled) -> bool:
        if told.producer < len(self._writes) and told.partition < len(self._logs):
            return True
        self.strange(Strange(told.time_ms, told.partition, told.offset, f"of producer {told.producer}"))
        return False

    def _observe(self, told: Polled, bit: int) -> None:
        self._writes[told.producer][told.partition].mark(told.sequence, told.length, bit)
        place = told.partition, told.offset, told.length, told.producer, told.sequence, told.epoch
        self._place(*place, final=bit == _FINAL)

    def _move(self, consumer: int, told: Polled) -> None:
        """A consumer goes on from where it was: neither back nor over something."""
        last = self._last[consumer][told.partition]
        where = f"consumer {consumer} partition {told.partition}: {told.offset} after {last}"
        if told.offset <= last:
            self.findings.add(Anomaly.NONMONOTONIC_POLL, where)
        elif told.offset > last + 1:
            self._gaps.append((consumer, told.partition, last + 1, told.offset))
        self._last[consumer][told.partition] = told.offset + told.length - 1

    def _check_order(self, told: Polled) -> None:
        if told.epoch < self._final_epoch[told.partition]:
            was = self._final_epoch[told.partition]
            where = f"partition {told.partition} offset {told.offset}"
            self.findings.add(Anomaly.EPOCH_REGRESSION, f"{where}: epoch {told.epoch} after {was}")
        self._final_epoch[told.partition] = told.epoch
        before = self._final_sequence[told.producer][told.partition]
        if told.sequence <= before:
            where = f"producer {told.producer} partition {told.partition} offset {told.offset}"
            example = f"{where}: sequence {told.sequence} after {before}"
            self._add_repeat(Anomaly.REORDERED, example, (told.partition, told.offset))
        self._final_sequence[told.producer][told.partition] = told.sequence + told.length - 1

    # Who is where

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
        """One offset of which something may be known already."""
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
        """Once for each offset, however many see it."""
        place = partition, offset
        if place in self._contradicted:
            return
        self._contradicted.add(place)
        both = " and ".join(f"{_words(identity)} of epoch {epoch}" for identity, epoch in two)
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
                self._report_duplicate(partition, producer << 40 | sequence + each, before, offset + each)

    def _report_duplicate(self, partition: int, identity: int, one: int, other: int) -> None:
        """Once for each record, however many see it."""
        if (partition, identity) not in self._repeated:
            self._repeated.add((partition, identity))
            where = f"partition {partition}: {_words(identity)} at {one} and {other}"
            self._add_repeat(Anomaly.DUPLICATE, where, (partition, other))

    def _add_repeat(self, anomaly: Anomaly, example: str, place: tuple[int, int]) -> None:
        if self.rules.idempotent:
            self.findings.add(anomaly, example, place)
        else:
            self.findings.permitted_repeats += 1

    # The end

    def verdict(self, *, all_sent: bool = True) -> Findings:
        """Once, after the final reading. `all_sent`: every producer told what became of every record it sent."""
        losses: set[tuple[int, int]] = set()
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

    def _judge_acked(
        self, partition: int, log: _Log, producer: int, writes: _Writes, losses: set[tuple[int, int]]
    ) -> None:
        """Acknowledged, and not in the log that remains."""
        for sequence in writes.where(_IS_MISSING):
            place = partition, writes.offsets[sequence]
            if self.rules.bounded and place[1] < log.final_start:
                continue
            who = f"partition {partition} offset {place[1]}: {_words(producer << 40 | sequence)}"
            if log.final_end is None:
                self.findings.add(Anomaly.UNSEEN, f"{who}: the final reading did not come to the end", place)
                continue
            cut = self._cut_by(log, producer, writes, sequence) if self.rules.lossy else None
            if cut is None:
                self.findings.add(Anomaly.LOST_WRITE, who, place)
            else:
                losses.add((partition, cut))
                self.findings.permitted_losses += 1
                self._judge_detection(partition, writes, sequence, who)

    def _cut_by(self, log: _Log, producer: int, writes: _Writes, sequence: int) -> int | None:
        """The later epoch whose leader never had this record; None where there is no such excuse."""
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
        """Whoever had polled what was cut off must have been told, and sent back at least that far."""
        for consumer in self._consumers:
            if not writes.flags[sequence] & _SEEN << consumer:
                continue
            resumed_at = self._resumed.get((consumer, partition))
            if resumed_at is None or resumed_at > writes.offsets[sequence]:
                place = partition, writes.offsets[sequence]
                self.findings.add(Anomaly.UNDETECTED_TRUNCATION, f"consumer {consumer}, {who}", place)

    def _judge_unseen(self, partition: int, producer: int, writes: _Writes) -> None:
        """In the log, acknowledged, and missed by a consumer."""
        wanted = _ACKED | _FINAL
        everyone = wanted | sum(_SEEN << consumer for consumer in self._consumers)
        for sequence in writes.where(_table(lambda flags: flags & everyone != everyone and flags & wanted == wanted)):
            missed = [n for n in self._consumers if not writes.flags[sequence] & _SEEN << n]
            place = partition, writes.offsets[sequence]
            who = f"partition {partition} offset {place[1]}: {_words(producer << 40 | sequence)}"
            self.findings.add(Anomaly.UNSEEN, f"{who} by consumers {missed}", place)

    def _judge_unknown(self, partition: int, producer: int, writes: _Writes) -> None:
        """Read, and neither acknowledged nor given up by the producer whose name it bears."""
        for sequence in writes.where(_IS_ORPHAN):
            who = _words(producer << 40 | sequence)
            self.findings.add(Anomaly.UNKNOWN_RECORD, f"partition {partition}: {who} was never sent")

    def _judge_gap(self, consumer: int, partition: int, first: int, end: int) -> None:
        """A hole in what a consumer was given is a skip as far as the log has records there."""
        log = self._logs[partition]
        if self.rules.lossy and log.final_end is not None:
            end = min(end, log.final_end)
        known = range(first, min(end, len(log.identities)))
        missed = [at for at in known if self._is_missed(consumer, log, partition, at)]
        if missed:
            where = f"consumer {consumer} partition {partition}: {missed[0]} to {missed[-1]}, then {end}"
            self.findings.add(Anomaly.POLL_SKIP, where)

    def _is_missed(self, consumer: int, log: _Log, partition: int, offset: int) -> bool:
        """Where logs are cut, what a consumer skipped may have been another record than the one that is there now."""
        identity = log.identities[offset]
        if identity == UNKNOWN or not self.rules.lossy:
            return identity != UNKNOWN
        flags = self._writes[identity >> 40][partition].flags[identity & (1 << 40) - 1]
        return not flags & _SEEN << consumer


def _words(identity: int) -> str:
    return f"record {identity & (1 << 40) - 1} of producer {identity >> 40}"
