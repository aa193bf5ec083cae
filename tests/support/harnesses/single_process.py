"""The metadata pipeline in one process, from rows to snapshots and changes, with a loop instead of Spark's workers."""

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from protocol.ids import LeaderEpoch
from protocol.primitives import Buffer
from protocol.records.compression import Codec
from protocol.records.quorum_control import ControlState
from spark_jobs.metadata.byte_columns import numbers
from spark_jobs.metadata.fold_context import context_of
from spark_jobs.metadata.log_rows import REGISTRY, TOPIC_SECTIONS, split_by_section
from spark_jobs.metadata.registry import Registry, RegistryChange
from spark_jobs.metadata.section_changes import no_changes
from spark_jobs.metadata.section_state import empty_state
from spark_jobs.metadata.sections import SectionResult, fold_registry, fold_section
from spark_jobs.metadata.snapshot_file import EncodeContext, assemble, encode_registry, encode_section
from spark_jobs.metadata.summary import control_after, summarize


class SingleProcess:
    """The state of a cluster at `end`, which is -1 before any row.

    `is_open`: a metadata transaction is open and began at `end`; the rows from there on are kept. `epoch` and
    `timestamp_ms` belong to the last batch folded.
    """

    def __init__(self, *, with_changes: bool = False) -> None:
        self.end = -1
        self.epoch = -1
        self.timestamp_ms = -1
        self.is_open = False
        self.control: ControlState | None = None
        self.registry = Registry()
        self.sections: list[pa.Table] = [empty_state() for _ in range(TOPIC_SECTIONS)]
        self.changes: pa.Table = no_changes()
        self.registry_changes: tuple[RegistryChange, ...] = ()
        self.changed_records = 0
        self._with_changes = with_changes
        self._pending: pa.Table | None = None

    def take(self, rows: pa.Table) -> None:
        """Fold the LOG_ROWS that follow; rows already folded are ignored.

        `changes` (by section, as workers would produce them) and `registry_changes` then hold the changes of this step.
        Raises the exceptions of the folds and leaves the state unchanged.
        """
        if self._pending is not None:
            last = int(numbers(self._pending.column("offset")).max())
            is_new = numbers(rows.column("offset")) > last
            rows = pa.concat_tables([self._pending, rows.filter(pa.array(is_new))])
        summary = summarize(rows)
        if summary.end <= self.end and not self.is_open:
            self.changes, self.registry_changes, self.changed_records = no_changes(), (), 0
            return
        context, transactions = context_of(summary, start=self.end, with_changes=self._with_changes)
        topics = [section for section in summary.sections if section != REGISTRY]
        folded = {
            section: fold_section(section, self.sections[section], mine, context)
            for section, mine in split_by_section(rows, topics)
        }
        registry = fold_registry(self.registry, rows, context)
        control = control_after(self.control, summary.control, start=self.end)
        self._keep(folded)
        self.registry, self.registry_changes = registry.registry, registry.changes
        self.changed_records = registry.changed_records + sum(each.changed_records for each in folded.values())
        self.control, self.epoch, self.timestamp_ms = control, summary.epoch, summary.timestamp_ms
        self.end, self.is_open = transactions.stable_end, transactions.is_open
        self._pending = rows.filter(pc.field("offset") >= self.end) if self.is_open else None

    def snapshot(self, codec: Codec = Codec.NONE) -> Iterator[Buffer]:
        """Yield the bytes of the snapshot at `end` in pieces. Raises ValueError while a transaction is open."""
        if self.is_open:
            raise ValueError(f"a metadata transaction has been open since offset {self.end}")
        context = EncodeContext(self.registry.version, LeaderEpoch(self.epoch), self.timestamp_ms, codec)
        sections = (encode_section(number, state, context) for number, state in enumerate(self.sections))
        return assemble(encode_registry(self.registry, self.control, context), sections)

    def _keep(self, folded: dict[int, SectionResult]) -> None:
        for section, result in folded.items():
            self.sections[section] = result.state
        self.changes = pa.concat_tables([no_changes(), *(result.changes for _, result in sorted(folded.items()))])
