"""The layout of a partition's remote log (`remote_log_layout.py`) during one leadership term.

Expiration and compaction share the layout. The tracker updates it on the loop, where segments come and go, in slices
(`loop_slices.py`); only the first update of a term reads all known segments.
"""

from collections.abc import Callable
from typing import Final

from broker.runtime.loop.loop_slices import LoopSlices
from broker.runtime.remote_log.leadership_term import LeadershipTerm
from storage.tiered.catalog.remote_log_layout import RemoteLogLayout
from storage.tiered.lifecycle.copying import lineage_of
from storage.tiered.remote_metadata import RemoteLogMetadataManager

SEGMENTS_A_SLICE: Final = 100
"""Segments read or updated in one slice: about a millisecond on the loop."""


class RemoteLayoutTracker:
    """The layout of one partition's remote log, kept up to date until `close`."""

    def __init__(self, term: LeadershipTerm, metadata: RemoteLogMetadataManager, slices: LoopSlices) -> None:
        self._term = term
        self._metadata = metadata
        self._slices = slices
        self._layout: RemoteLogLayout | None = None

    def close(self) -> None:
        """Stop updating the layout; the term is over."""
        if self._layout is not None:
            self._layout.close()
            self._layout = None

    @property
    def latest(self) -> RemoteLogLayout | None:
        """The layout as of the last update; None before the first."""
        return self._layout

    async def settled(self) -> RemoteLogLayout | None:
        """Return the present layout, valid until the next await; None if the log must not be touched.

        Raises RemoteMetadataNotReady.
        """
        return await self.walk(lambda layout: True)

    async def walk(self, step: Callable[[RemoteLogLayout], bool]) -> RemoteLogLayout | None:
        """Return the layout after `step` has examined it, a part at a time, until `step` returns true.

        The layout may be replaced between two calls of `step`. Raises RemoteMetadataNotReady.
        """
        found: RemoteLogLayout | None = None

        def slice() -> bool:
            nonlocal found
            found = None
            if not self._term.may_touch_log():
                return True
            layout = self._current()
            if not layout.settle(SEGMENTS_A_SLICE) or not step(layout):
                return False
            found = layout
            return True

        await self._slices.run(slice)
        return found

    def _current(self) -> RemoteLogLayout:
        """Return the layout of the present lineage; it may have to be settled first."""
        known, log = self._metadata.known(self._term.id), self._term.partition.log
        layout, lineage = self._layout, lineage_of(log)
        if layout is None or not layout.is_of(known) or not layout.follows(lineage, log.log_start_offset):
            layout = self._layout = RemoteLogLayout(known, lineage, log.log_start_offset)
        else:
            layout.use(lineage, log.log_start_offset)
        return layout
