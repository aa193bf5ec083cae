"""The common part of all simulators: results of a seed, and the two phases of a simulation.

In the first phase, faults and work go on for a number of events. In the second phase faults stop, every node runs and
no new work starts; the simulated system must settle within `RECOVERY_MS` of simulated time (liveness). All randomness
comes from the seed, so a seed always gives the same history.
"""

import traceback
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import ClassVar, Final, NoReturn

from tests.simulation.world import PowerFailure, Process, World

RECOVERY_MS: Final = 120_000.0
RECOVERY_EVENTS: Final = 60_000
"""More events than any recovery without an endless loop needs."""
_EVENTS_BETWEEN_CHECKS: Final = 16
_SETTLED_CHECKS: Final = 3
_KEPT_LINES: Final = 400
_LINES_OF_A_VIOLATION: Final = 40


class Violation(BaseException):
    """An invariant does not hold. Derived from BaseException: no handler of ordinary errors may catch it."""

    def __init__(self, invariant: str, text: str) -> None:
        super().__init__(f"{invariant}: {text}")
        self.invariant = invariant
        self.text = text


class Counts:
    """Occurrences of named incidents. A campaign in which one of `NAMES` never occurs proves nothing about it."""

    NAMES: ClassVar[tuple[str, ...]] = ()
    OPTIONAL: ClassVar[tuple[str, ...]] = ()
    """Incidents that a campaign need not contain."""

    def __init__(self) -> None:
        self.by_name: dict[str, int] = dict.fromkeys((*self.NAMES, *self.OPTIONAL), 0)

    def add(self, name: str, count: int = 1) -> None:
        """Count an incident `count` times."""
        self.by_name[name] = self.by_name.get(name, 0) + count

    def set(self, counts: Mapping[str, int]) -> None:
        """Take over known counts that another object keeps."""
        assert counts.keys() <= self.by_name.keys()
        self.by_name.update(counts)


@dataclass(frozen=True, slots=True)
class FoundViolation:
    """A violated invariant, and the last lines of the history before it."""

    seed: int
    event: int
    invariant: str
    text: str
    last_lines: list[str]


@dataclass(frozen=True, slots=True)
class SimulationResult:
    """The result of one seed. `lines` are the last lines of its history."""

    seed: int
    events: int
    counts: Counts
    found: FoundViolation | None = None
    lines: list[str] = field(default_factory=list)


class Simulator(ABC):
    """A simulation of one seed. Single-object use: call `run` once."""

    kept_lines: ClassVar[int] = _KEPT_LINES

    def __init__(self, seed: int) -> None:
        self.seed = seed

    @property
    @abstractmethod
    def events(self) -> int:
        """The number of events so far."""

    @property
    @abstractmethod
    def counts(self) -> Counts:
        """The incidents so far."""

    @abstractmethod
    def last_lines(self, count: int) -> list[str]:
        """Return the last lines of the history."""

    @abstractmethod
    def play(self) -> None:
        """Run both phases. Raises Violation."""

    @abstractmethod
    def close(self) -> None:
        """Stop all processes at the end."""

    def run(self) -> SimulationResult:
        """Run the simulation and return its result."""
        found = None
        try:
            self.play()
        except Violation as violation:
            lines = self.last_lines(_LINES_OF_A_VIOLATION)
            found = FoundViolation(self.seed, self.events, violation.invariant, violation.text, lines)
        finally:
            self.close()
        return SimulationResult(self.seed, self.events, self.counts, found, self.last_lines(self.kept_lines))


class PartCounts(Counts):
    """Counts of a part of a simulation, under the names that the whole gives them."""

    def __init__(self, whole: Counts, names: Mapping[str, str]) -> None:
        self._whole = whole
        self._names = names
        super().__init__()

    def add(self, name: str, count: int = 1) -> None:
        self._whole.add(self._names.get(name, name), count)


class EventLog:
    """The number of events, the incidents, and the last lines of a history; base of the checkers."""

    def __init__(self, counts: Counts, now_ms: Callable[[], float], *, kept_lines: int = _KEPT_LINES) -> None:
        self.counts = counts
        self.events = 0
        self._now_ms = now_ms
        self._lines: deque[str] = deque(maxlen=kept_lines)

    def note(self, text: str) -> None:
        """Add a line to the history."""
        self._lines.append(f"{self.events:6} {self._now_ms():10.1f}  {text}")

    def last_lines(self, count: int) -> list[str]:
        """Return the last lines of the history."""
        return list(islice(self._lines, max(0, len(self._lines) - count), None))

    def fail(self, name: str, text: str) -> NoReturn:
        """Raise Violation of the invariant `name`."""
        self.note(f"{name}: {text}")
        raise Violation(name, text)


class EventSimulator(Simulator):
    """A simulator whose events come from a `World`."""

    def __init__(self, seed: int, world: World, log: EventLog, *, planned_events: int) -> None:
        super().__init__(seed)
        self.world = world
        self.is_recovering = False
        self.recovery_ms = RECOVERY_MS
        self._log = log
        self._planned_events = planned_events

    @property
    def events(self) -> int:
        return self._log.events

    @property
    def counts(self) -> Counts:
        return self._log.counts

    def last_lines(self, count: int) -> list[str]:
        return self._log.last_lines(count)

    # Hooks

    @abstractmethod
    def begin(self) -> None:
        """Start nodes, work and faults."""

    @abstractmethod
    def stop_faults(self) -> None:
        """End faults and new work, and start every node that is down."""

    @abstractmethod
    def unsettled_reason(self) -> str | None:
        """Return the first reason why the system has not settled; None if it has."""

    @abstractmethod
    def observe(self, process: Process) -> None:
        """Check the node of a process after an event of that process."""

    @abstractmethod
    def on_power_failure(self, process: Process) -> None:
        """Lose unsynced data of the process's node and restart the node later."""

    @property
    def is_on_trial(self) -> bool:
        """Whether a trial within the first phase goes on, which the phase must not cut short."""
        return False

    def on_error(self, process: Process | None, error: Exception) -> None:
        """Handle an exception that left an event; by default a violation."""
        name = "the simulation" if process is None else f"node {process.node_id}"
        self.fail_on_error(name, "raised", error)

    # Both phases

    def play(self) -> None:
        self.begin()
        while self.events < self._planned_events or self.is_on_trial:
            self.step()
        self.is_recovering = True
        self._log.note("faults end")
        self.stop_faults()
        self._settle()

    def _settle(self) -> None:
        deadline, last, settled = self.world.now_ms + self.recovery_ms, self.events + RECOVERY_EVENTS, 0
        while settled < _SETTLED_CHECKS:
            for _ in range(_EVENTS_BETWEEN_CHECKS):
                self.step()
            reason = self.unsettled_reason()
            settled = settled + 1 if reason is None else 0
            is_stuck = reason is not None and self.world.is_idle
            if self.world.now_ms > deadline or self.events > last or is_stuck:
                self._log.fail("Liveness", f"long after the last fault, {reason}")

    def step(self) -> None:
        """Run one event and check the node that it belongs to."""
        self._log.events += 1
        try:
            self.world.step()
        except PowerFailure:
            assert self.world.current is not None, "only nodes lose power"
            self.on_power_failure(self.world.current)
        except Violation:
            raise
        except Exception as error:  # noqa: BLE001  an exception that a node does not handle is a violation
            process = self.world.current
            if process is None or process.is_alive:  # otherwise the rest of an event in which the node died
                self.on_error(process, error)
        process = self.world.current
        if process is not None and process.is_alive:
            self.observe(process)

    def fail_on_error(self, subject: str, verb: str, error: BaseException) -> NoReturn:
        """Raise Violation for an exception, with its traceback."""
        where = "".join(traceback.format_exception(error))
        self._log.fail("NodesDoNotFail", f"{subject} {verb} {error!r}\n{where}")
