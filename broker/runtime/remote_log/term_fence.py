"""Search for later leadership terms before every destructive act on a remote log.

A leader that is cut off from the controllers alone does not learn that it was deposed, while it still reaches remote
storage and the metadata topic. Two kinds of evidence end its right to delete:

- metadata of a segment, in any state, that holds a leader epoch above the term's;
- a log start object of a later epoch: leaders write one when their term begins (`log_start_object.py`).

Both are looked for before each deletion, not once per term. The evidence is final: epochs of a partition only rise. A
deletion that was begun before the successor's claim is one that the term was entitled to, and the metadata tell the
successor.
"""

from broker.logs import EventLog
from broker.runtime.loop.thread_pool import WorkPool
from broker.runtime.remote_log.leadership_term import LeadershipTerm
from broker.runtime.remote_log.log_starts import LogStarts, is_superseded
from storage.tiered.lifecycle.later_terms import latest_epoch
from storage.tiered.remote_metadata import RemoteLogMetadataManager

_log = EventLog("broker.remote")


class TermFence:
    """The search, for all partitions of a broker. `pool` runs the calls of `log_starts`."""

    def __init__(self, metadata: RemoteLogMetadataManager, log_starts: LogStarts, pool: WorkPool) -> None:
        self._metadata = metadata
        self._log_starts = log_starts
        self._pool = pool

    async def may_delete(self, term: LeadershipTerm) -> bool:
        """Whether the term lasts, as far as this broker can tell: call it right before each destructive act.

        Raises RemoteMetadataNotReady, LogStartStoreError, PoolFull: delete nothing then.
        """
        if self.knows_later_term(term):
            return False
        if await is_superseded(self._log_starts, self._pool, term.id, term.epoch):
            self._note_deposed(term, "its log start object in remote storage")
        return not self._is_past(term)

    def knows_later_term(self, term: LeadershipTerm) -> bool:
        """Whether the term is over or deposed by the remote metadata alone. Raises RemoteMetadataNotReady."""
        if term.is_over():
            return True
        if not term.is_deposed and latest_epoch(self._metadata.known(term.id)) > term.epoch:
            self._note_deposed(term, "the metadata of its segments")
        return self._is_past(term)

    def _is_past(self, term: LeadershipTerm) -> bool:
        """Whether the term is over or deposed; a refusal of a deposed leader is counted."""
        if term.is_over():
            return True
        if term.is_deposed:
            term.note_refused_deletion()
        return term.is_deposed

    def _note_deposed(self, term: LeadershipTerm, evidence: str) -> None:
        if not term.is_deposed and not term.is_over():
            _log.warning(
                "another broker leads the partition in a later epoch: this broker deletes no remote segment; "
                "check its connection to the controllers",
                partition=term,
                epoch=term.epoch,
                known_from=evidence,
            )
        term.is_deposed = True
