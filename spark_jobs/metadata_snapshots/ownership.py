"""Whose a state is: of several jobs that fold into one place, the one that began last. The others end by themselves.

A job that does not know yet that it is dead for others, and one that was started by mistake, write the same bytes under
the same names, but each removes what only the other still needs. So whoever begins leaves a token in the state, and
looks for it before what a step did counts. Between a look and what follows another may begin: a
commit that comes of that may name files that are gone, and is passed over by whoever begins next (`StateStore.settle`).
"""

import json
from dataclasses import dataclass
from typing import Final

from spark_jobs.metadata_snapshots.state_store import StateStore
from storage.tiered.errors import ObjectNotFound

OWNER: Final = "owner.json"


class TakenOver(Exception):
    """The state is no longer this job's: one sentence."""


@dataclass(frozen=True, slots=True)
class Ownership:
    """`token` is no other job's; `where` tells people which job this is. Raises as the store does."""

    store: StateStore
    token: str
    where: str

    def take(self) -> None:
        """From now on the state is this job's."""
        self.store.put(OWNER, [json.dumps({"token": self.token, "where": self.where}).encode() + b"\n"])

    def check(self) -> None:
        """Raises TakenOver."""
        token, where = self._found()
        if token != self.token:
            raise TakenOver(f"{where} folds into {self.store.uri} now, so this one ends.")

    def _found(self) -> tuple[str, str]:
        try:
            fields = json.loads(self.store.read(OWNER))
            return str(fields["token"]), f"another job, {fields['where']},"
        except ObjectNotFound:
            raise TakenOver(f"the state in {self.store.uri} was removed while this job was folding into it.") from None
        except (ValueError, KeyError, TypeError):
            return "", "another job"
