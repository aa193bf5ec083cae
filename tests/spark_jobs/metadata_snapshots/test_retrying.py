"""What is tried again and for how long, and how a job hears that it is to end."""

from collections.abc import Callable, Iterator

import pytest

from spark_jobs.metadata_snapshots.retrying import ATTEMPTS, RETRY_S, Retrying
from spark_jobs.metadata_snapshots.stop_sign import StopSign
from storage.tiered.errors import ObjectStoreError, StoreUnavailable


class Clock:
    """Time passes while somebody naps; `then` is called once, when so much has passed."""

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
    """Attempts that fail as told, and then succeed."""

    def __init__(self, *failures: Exception) -> None:
        self.clock = Clock()
        self.stop = StopSign(self.clock.monotonic, self.clock.nap)
        self.told: list[str] = []
        self.attempts = 0
        self.progress: Callable[[], object] = lambda: "none"
        self._failures: Iterator[Exception] = iter(failures)

    def attempt(self) -> None:
        self.attempts += 1
        if (failure := next(self._failures, None)) is not None:
            raise failure

    def run(self, *, is_patient: bool = False) -> None:
        retrying = Retrying((ObjectStoreError, RuntimeError), self.stop, self.told.append)
        retrying.until_done(self.attempt, lambda: self.progress(), is_patient=is_patient)


def test_a_store_that_is_away_for_long_is_waited_for_by_the_patient() -> None:
    trial = Trial(*[StoreUnavailable("no answer")] * 50)
    trial.run(is_patient=True)
    assert (trial.attempts, trial.told) == (51, ["no answer."] * 50)
    assert trial.clock.now == pytest.approx(sum(RETRY_S[1:]) + 46 * RETRY_S[-1])


def test_others_give_up_after_a_few() -> None:
    trial = Trial(*[StoreUnavailable("no answer")] * 50)
    with pytest.raises(StoreUnavailable):
        trial.run()
    assert trial.attempts == ATTEMPTS


def test_what_nobody_expects_is_given_up_by_the_patient_too() -> None:
    trial = Trial(*[RuntimeError("?")] * 50)
    with pytest.raises(RuntimeError):
        trial.run(is_patient=True)
    assert (trial.attempts, trial.told) == (ATTEMPTS, ["RuntimeError: ?"] * (ATTEMPTS - 1))


def test_a_step_forward_begins_the_count_anew() -> None:
    trial = Trial(*[RuntimeError("?")] * 50)
    trial.progress = object
    trial.run()
    assert trial.attempts == 51


def test_what_cannot_pass_is_not_tried_again() -> None:
    trial = Trial(ObjectStoreError("access denied"))
    with pytest.raises(ObjectStoreError):
        trial.run(is_patient=True)
    assert trial.attempts == 1


def test_who_is_told_to_stop_does_not_wait_any_longer() -> None:
    trial = Trial(*[StoreUnavailable("no answer")] * 50)
    trial.clock.then = (10.1, trial.stop.put_up)
    trial.run(is_patient=True)
    assert trial.clock.now == pytest.approx(10.1, abs=0.3)
    assert trial.attempts == 3, "at once, after 2 seconds, and after 5 more"


def test_a_failure_of_who_is_stopping_is_none() -> None:
    trial = Trial(RuntimeError("Stopping"))
    trial.progress = trial.stop.put_up
    trial.run()
    assert trial.told == []
