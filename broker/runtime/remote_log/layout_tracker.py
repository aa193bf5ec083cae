"""The layout of what is remote (`remote_log_layout.py`) in one term of a leader, for all who work on that.

It is brought up to date on the loop, where segments come and go, in slices (`loop_slices.py`); only the first of a
term reads all that is known.
"""

from collections.abc import Callable
from typing import Final

from broker.runtime.loop.loop_slices import LoopSlices
from broker.runtime.remote_log.leadership_term import LeadershipTerm
from storage.tiered.catalog.remote_log_layout import RemoteLogLayout
from storage.tiered.lifecycle.copying import lineage_of
from storage.tiered.remote_metadata import RemoteLogMetadataManager

SEGMENTS_A_SLICE: Final = 100
"""Read or mended at once: about a millisecond on the loop."""


class RemoteLayoutTracker:
    def __init__(self, term: LeadershipTerm, metadata: RemoteLogMetadataManager, slices: LoopSlices) -> None:
        self._term = term
        self._metadata = metadata
        self._slices = slices
        self._layout: RemoteLogLayout | None = None

    def close(self) -> None:
        """The term is over: nothing is kept up to date any more."""
        if self._layout is not None:
            self._layout.close()
            self._layout = None

    async def settled(self) -> RemoteLogLayout | None:
        """The layout as it is now, until the next await; None where the log must not be touched. Raises
        RemoteMetadataNotReady.
        """
        return await self.walk(lambda layout: True)

    async def walk(self, step: Callable[[RemoteLogLayout], bool]) -> RemoteLogLayout | None:
        """As `settled`, and has `step` look at it, some links at a time, until it says that this was all. Between two
        looks the layout may become another one.
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
        """Perhaps still to be settled."""
        known, log = self._metadata.known(self._term.id), self._term.partition.log
        layout, lineage = self._layout, lineage_of(log)
        if layout is None or not layout.is_of(known) or not layout.follows(lineage, log.log_start_offset):
            layout = self._layout = RemoteLogLayout(known, lineage, log.log_start_offset)
        else:
            layout.use(lineage, log.log_start_offset)
        return layout
