"""Retries of a failed action, with their number and duration. A failure loses nothing, and repeats nothing."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from spark_jobs.metadata_snapshots.failures import failure_of, in_short
from spark_jobs.metadata_snapshots.stop_flag import StopFlag

ATTEMPTS: Final = 4
RETRY_S: Final = (1.0, 2.0, 5.0, 10.0, 30.0)


@dataclass(frozen=True, slots=True)
class Retrying:
    """The policy of retries. `failures` are the exceptions to retry after; `on_retry` receives the reason of each
    retry.
    """

    failures: tuple[type[Exception], ...]
    stop: StopFlag
    on_retry: Callable[[str], None]

    def until_done(
        self, attempt: Callable[[], None], progress: Callable[[], object], *, is_patient: bool = False
    ) -> None:
        """Repeat `attempt` until it succeeds, fails for good, or the job stops.

        With `is_patient`, transient failures, such as an unavailable store or cluster, are retried without limit. Other
        failures are retried a few times in a row; the row ends when `progress` returns another object than before.
        """
        in_a_row, before = 0, progress()
        while not self.stop.is_set():
            try:
                attempt()
                return
            except self.failures as error:
                if self.stop.is_set():
                    return
                now = progress()
                in_a_row, before = 0 if now is not before else in_a_row + 1, now
                failure = failure_of(error)
                is_hopeless = failure is not None and not failure.is_retriable
                is_patience_over = in_a_row == ATTEMPTS and not (is_patient and failure is not None)
                if is_hopeless or is_patience_over:
                    raise
                self.on_retry(failure.sentence if failure else in_short(error))
                self.stop.wait(RETRY_S[min(in_a_row, len(RETRY_S) - 1)])
