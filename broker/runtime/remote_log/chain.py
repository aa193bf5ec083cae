"""The chain of what is remote (`remote_log_layout.py`) in one reign of a leader, for all who work on that.

It is brought up to date on the loop, where segments come and go, in slices (`loop_slices.py`); only the first of a
reign reads all that is known.
"""

from collections.abc import Callable
from typing import Final

from broker.runtime.loop.loop_slices import LoopSlices
from broker.runtime.remote_log.tiered_partition import Reign
from storage.tiered.catalog.remote_log_layout import RemoteLogLayout
from storage.tiered.lifecycle.copying import lineage_of
from storage.tiered.remote_metadata import RemoteLogMetadataManager

SEGMENTS_A_SLICE: Final = 100
"""Read or mended at once: about a millisecond on the loop."""


class RemoteChain:
    def __init__(self, reign: Reign, metadata: RemoteLogMetadataManager, slices: LoopSlices) -> None:
        self._reign = reign
        self._metadata = metadata
        self._slices = slices
        self._chain: RemoteLogLayout | None = None

    def close(self) -> None:
        """The reign is over: nothing is kept up to date any more."""
        if self._chain is not None:
            self._chain.close()
            self._chain = None

    async def settled(self) -> RemoteLogLayout | None:
        """The chain as it is now, until the next await; None where the log must not be touched. Raises
        RemoteMetadataNotReady.
        """
        return await self.walk(lambda chain: True)

    async def walk(self, step: Callable[[RemoteLogLayout], bool]) -> RemoteLogLayout | None:
        """As `settled`, and has `step` look at it, some links at a time, until it says that this was all. Between two
        looks the chain may become another one.
        """
        found: RemoteLogLayout | None = None

        def slice() -> bool:
            nonlocal found
            found = None
            if not self._reign.may_touch_log():
                return True
            chain = self._current()
            if not chain.settle(SEGMENTS_A_SLICE) or not step(chain):
                return False
            found = chain
            return True

        await self._slices.run(slice)
        return found

    def _current(self) -> RemoteLogLayout:
        """Perhaps still to be settled."""
        known, log = self._metadata.known(self._reign.id), self._reign.partition.log
        chain, lineage = self._chain, lineage_of(log)
        if chain is None or not chain.is_of(known) or not chain.follows(lineage, log.log_start_offset):
            chain = self._chain = RemoteLogLayout(known, lineage, log.log_start_offset)
        else:
            chain.use(lineage, log.log_start_offset)
        return chain
