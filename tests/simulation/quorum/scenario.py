"""The parameters of a seed: number and configuration of nodes, and severity of faults."""

from dataclasses import dataclass, replace
from random import Random
from typing import Final

from tests.simulation.weather import Weather, draw_weather

MAX_VOTERS: Final = 5
MAX_OBSERVERS: Final = 5
_ABOUT_VOTER_CHANGES: Final = 0.15
"""Share of the histories that are mostly about voter changes."""
MOST_OBSERVERS: Final = 12
"""The number of observers that a leader may track; more than there are nodes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """Parameters of a history; times in ms of simulated true time. Nodes 1 … voters are the first voters; of the rest,
    `joiners` could become voters.

    `fault_every_ms` and `append_every_ms` are means, `calm_share` is the probability of a calm instead of a fault. With
    `in_bytes` messages are encoded and decoded; with `imports` nodes import snapshots from a store (`offers.py`). Sizes
    are small, so that everything takes several steps.
    """

    voters: int
    joiners: int
    brokers: int
    kraft_version: int
    auto_join: bool
    drift: float
    weather: Weather
    fault_every_ms: float
    calm_share: float
    append_every_ms: float
    io_inline_share: float
    io_delay_ms: float
    election_timeout_ms: int
    fetch_timeout_ms: int
    append_linger_ms: int
    fetch_max_bytes: int
    fetch_snapshot_max_bytes: int
    fetch_max_wait_ms: int
    observer_session_timeout_ms: int
    start_offset_lag_time_max_ms: int
    retention_bytes: int
    trim_interval_ms: int
    segment_bytes: int
    snapshot_bytes: int
    in_bytes: bool
    imports: bool
    import_timeout_ms: int
    import_min_records: int
    import_delay_ms: float
    changes_voters: bool = False
    """Whether the history is mostly about voter changes: there are other controllers, and few other faults."""
    late_timeouts: float = 0.0
    """The largest delay of a time-out of a request, as a share of it, because the sender's event loop is busy."""

    @property
    def node_ids(self) -> range:
        return range(1, self.voters + self.joiners + self.brokers + 1)

    def can_vote(self, node_id: int) -> bool:
        """Whether a node is a controller."""
        return node_id <= self.voters + self.joiners


def draw_scenario(random: Random) -> Scenario:
    """Draw a scenario: mostly three voters and a few observers, the most common setup."""
    observers = random.choice((0, 0, 1, 1, 2, 2, 3, 4, 5))
    kraft_version = 0 if random.random() < 0.15 else 1
    joiners = random.randint(0, observers) if kraft_version == 1 else random.choice((0, 0, observers))
    timeout_ms = random.choice((300, 500, 1000))
    scenario = Scenario(
        voters=random.choice((1, 2, 3, 3, 3, 3, 4, 5, 5)),
        joiners=joiners,
        brokers=observers - joiners,
        kraft_version=kraft_version,
        auto_join=random.random() < 0.4,
        drift=random.choice((0.0, 0.01, 0.1)),
        weather=draw_weather(random),
        fault_every_ms=random.choice((150.0, 300.0, 600.0)),
        calm_share=random.choice((0.0, 0.05, 0.05, 0.15)),
        append_every_ms=random.choice((30.0, 80.0, 200.0)),
        io_inline_share=random.choice((0.3, 0.8, 0.95)),
        io_delay_ms=random.choice((1.0, 5.0, 40.0)),
        election_timeout_ms=timeout_ms,
        fetch_timeout_ms=2 * timeout_ms,
        append_linger_ms=random.choice((0, 5, 25, 25)),
        fetch_max_bytes=random.choice((400, 2_000, 1_000_000)),
        fetch_snapshot_max_bytes=random.choice((200, 700, 1_000_000)),
        fetch_max_wait_ms=random.choice((100, 500)),
        observer_session_timeout_ms=random.choice((1_500, 5_000, 300_000)),
        start_offset_lag_time_max_ms=random.choice((1_000, 10_000, 604_800_000)),
        retention_bytes=random.choice((1_000, 4_000, 20_000)),
        trim_interval_ms=random.choice((200, 1_000)),
        segment_bytes=random.choice((600, 2_000, 20_000)),
        snapshot_bytes=random.choice((500, 1_500, 5_000)),
        in_bytes=random.random() < 0.15,
        imports=random.random() < 0.4,
        import_timeout_ms=random.choice((500, 3_000, 20_000)),
        import_min_records=random.choice((10, 100, 10_000)),
        import_delay_ms=random.choice((1.0, 100.0, 1_000.0)),
    )
    scenario = replace(scenario, late_timeouts=random.choice((0.0, 0.2)))
    return _about_voter_changes(scenario, random) if random.random() < _ABOUT_VOTER_CHANGES else scenario


def _about_voter_changes(scenario: Scenario, random: Random) -> Scenario:
    return replace(
        scenario,
        voters=random.choice((2, 3, 3, 4)),
        joiners=random.choice((2, 3)),
        brokers=0,
        kraft_version=1,
        auto_join=False,
        fault_every_ms=3_000.0,
        changes_voters=True,
    )
