"""How often something is tried again, and for how long: nothing is lost by a failure here, and nothing done twice."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from spark_jobs.metadata_snapshots.failures import failure_of, in_short
from spark_jobs.metadata_snapshots.stop_sign import StopSign

ATTEMPTS: Final = 4
RETRY_S: Final = (1.0, 2.0, 5.0, 10.0, 30.0)


@dataclass(frozen=True, slots=True)
class Retrying:
    """`failures` are the exceptions to try again after, `waits` is told why there is another try."""

    failures: tuple[type[Exception], ...]
    stop: StopSign
    waits: Callable[[str], None]

    def until_done(
        self, attempt: Callable[[], None], progress: Callable[[], object], *, is_patient: bool = False
    ) -> None:
        """Do it until it works, as far as there is hope, or until it is to stop.

        What is known to pass, a store or a cluster that is away, is waited for as long as it takes if this
        `is_patient`. Of all else a few failures in a row are enough; they are no longer in a row when `progress`
        answers with another object than before.
        """
        in_a_row, before = 0, progress()
        while not self.stop.is_up():
            try:
                attempt()
                return
            except self.failures as error:
                if self.stop.is_up():
                    return
                now = progress()
                in_a_row, before = 0 if now is not before else in_a_row + 1, now
                failure = failure_of(error)
                is_hopeless = failure is not None and not failure.is_retriable
                is_patience_over = in_a_row == ATTEMPTS and not (is_patient and failure is not None)
                if is_hopeless or is_patience_over:
                    raise
                self.waits(failure.sentence if failure else in_short(error))
                self.stop.wait(RETRY_S[min(in_a_row, len(RETRY_S) - 1)])
