"""Ownership of a state: of several jobs that fold into one location, the latest one owns it, and the others end.

A job that was replaced without noticing, or that was started by mistake, writes the same bytes under the same names,
but removes files that the other job still needs. Each job therefore writes a token into the state at its start, and
checks the token before a step takes effect. Another job may start between the check and the effect: the resulting
commit may name removed files, and the next job skips it (`StateStore.settle`).
"""

import json
from dataclasses import dataclass
from typing import Final

from spark_jobs.metadata_snapshots.state_store import StateStore
from storage.tiered.errors import ObjectNotFound

OWNER: Final = "owner.json"


class TakenOver(Exception):
    """Another job owns the state; the message is one sentence."""


@dataclass(frozen=True, slots=True)
class Ownership:
    """The ownership of one job. `token` is unique; `where` describes the job for people. Raises the exceptions of the
    store.
    """

    store: StateStore
    token: str
    where: str

    def take(self) -> None:
        """Take ownership of the state."""
        self.store.put(OWNER, [json.dumps({"token": self.token, "where": self.where}).encode() + b"\n"])

    def check(self) -> None:
        """Raise TakenOver if another job owns the state."""
        token, where = self._found()
        if token != self.token:
            raise TakenOver(f"{where} now folds into {self.store.uri}, so this job ends.")

    def _found(self) -> tuple[str, str]:
        try:
            fields = json.loads(self.store.read(OWNER))
            return str(fields["token"]), f"another job, {fields['where']},"
        except ObjectNotFound:
            raise TakenOver(f"the state in {self.store.uri} was removed while this job was folding into it.") from None
        except (ValueError, KeyError, TypeError):
            return "", "another job"
