"""Retries: their conditions and duration, and the effect of a stop."""

from collections.abc import Callable, Iterator

import pytest

from spark_jobs.metadata_snapshots.retrying import ATTEMPTS, RETRY_S, Retrying
from spark_jobs.metadata_snapshots.stop_flag import StopFlag
from storage.tiered.errors import ObjectStoreError, StoreUnavailable


class Clock:
    """A clock that advances with naps; `then` is called once at a given time."""

    def __init__(self) -> None:
        self.now = 0.0
        self.then: tuple[float, Callable[[], None]] | None = None

    def monotonic(self) -> float:
        return self.now

    def nap(self, seconds: float) -> None:
        self.now += seconds
        if self.then is not None and self.now >= self.then[0]:
            _, call = self.then
            self.then = None
            call()


class Trial:
    """Attempts that fail as configured, and then succeed."""

    def __init__(self, *failures: Exception) -> None:
        self.clock = Clock()
        self.stop = StopFlag(self.clock.monotonic, self.clock.nap)
        self.retried: list[str] = []
        self.attempts = 0
        self.progress: Callable[[], object] = lambda: "none"
        self._failures: Iterator[Exception] = iter(failures)

    def attempt(self) -> None:
        self.attempts += 1
        if (failure := next(self._failures, None)) is not None:
            raise failure

    def run(self, *, is_patient: bool = False) -> None:
        retrying = Retrying((ObjectStoreError, RuntimeError), self.stop, self.retried.append)
        retrying.until_done(self.attempt, lambda: self.progress(), is_patient=is_patient)


def test_patient_retries_wait_for_an_unavailable_store() -> None:
    trial = Trial(*[StoreUnavailable("no answer")] * 50)
    trial.run(is_patient=True)
    assert (trial.attempts, trial.retried) == (51, ["no answer."] * 50)
    assert trial.clock.now == pytest.approx(sum(RETRY_S[1:]) + 46 * RETRY_S[-1])


def test_impatient_retries_give_up_after_a_few() -> None:
    trial = Trial(*[StoreUnavailable("no answer")] * 50)
    with pytest.raises(StoreUnavailable):
        trial.run()
    assert trial.attempts == ATTEMPTS


def test_patient_retries_give_up_on_unexpected_failures() -> None:
    trial = Trial(*[RuntimeError("?")] * 50)
    with pytest.raises(RuntimeError):
        trial.run(is_patient=True)
    assert (trial.attempts, trial.retried) == (ATTEMPTS, ["RuntimeError: ?"] * (ATTEMPTS - 1))


def test_progress_resets_the_retry_count() -> None:
    trial = Trial(*[RuntimeError("?")] * 50)
    trial.progress = object
    trial.run()
    assert trial.attempts == 51


def test_permanent_failure_is_not_retried() -> None:
    trial = Trial(ObjectStoreError("access denied"))
    with pytest.raises(ObjectStoreError):
        trial.run(is_patient=True)
    assert trial.attempts == 1


def test_stop_ends_the_wait() -> None:
    trial = Trial(*[StoreUnavailable("no answer")] * 50)
    trial.clock.then = (10.1, trial.stop.set)
    trial.run(is_patient=True)
    assert trial.clock.now == pytest.approx(10.1, abs=0.3)
    assert trial.attempts == 3, "attempts at once, after 2 seconds, and after 5 more"


def test_failure_during_a_stop_is_ignored() -> None:
    trial = Trial(RuntimeError("Stopping"))
    trial.progress = trial.stop.set
    trial.run()
    assert trial.retried == []
