"""The parameters of a seed: those of the brokers, and those of the metadata quorum and its controllers."""

from dataclasses import dataclass, replace
from random import Random
from typing import Final

from tests.simulation.replication.scenario import Mood, Scenario, TopicScenario
from tests.simulation.replication.scenario import draw_scenario as draw_broker_scenario

_DEDICATED_IDS: Final = (11, 12, 13)
SPARE_IDS: Final = (14, 15)
_VOTERS: Final = 3
_COORDINATORS_SHARE: Final = 0.4
"""Share of the histories without tiered topic in which brokers are coordinators."""
_ACLS_SHARE: Final = 0.4
"""Share of the histories without coordinators in which brokers authorize clients."""
FIRST_CLIENT_ID: Final = 101
INPUT: Final = "input"
"""The topic of histories with coordinators that a pipeline reads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataScenario:
    """Parameters of the quorum and the controllers; times in ms. `deaths` is the share of seeds in which a controller
    or a broker dies for good; `min_changed_ratio`, `snapshot_bytes` and `snapshot_interval_ms` trigger snapshots.
    With `tiered` there is a topic with remote storage. The first `combined` brokers are controllers as well, in place
    of as many dedicated ones; `spares` controllers are no voters at first. With `auto_join` controllers add themselves
    to the voters. With `coordinators` brokers coordinate transactions and groups, and clients use both. With `acls`
    brokers authorize clients by lists that change; with `acls_open` resources without entries are open to all.
    """

    election_timeout_ms: int
    fetch_timeout_ms: int
    append_linger_ms: int
    fetch_max_wait_ms: int
    fetch_snapshot_max_bytes: int
    observer_session_timeout_ms: int
    start_offset_lag_time_max_ms: int
    retention_bytes: int
    trim_interval_ms: int
    segment_bytes: int
    snapshot_bytes: int
    snapshot_interval_ms: int
    min_changed_ratio: float
    max_idle_interval_ms: int
    deaths: bool
    tiered: bool
    combined: int
    spares: int
    auto_join: bool
    coordinators: bool
    acls: bool
    acls_open: bool

    @property
    def first_voters(self) -> tuple[int, ...]:
        """Return the ids of the first voters."""
        return (*range(1, self.combined + 1), *_DEDICATED_IDS[: _VOTERS - self.combined])

    @property
    def controller_ids(self) -> tuple[int, ...]:
        """Return the ids of all nodes that can vote."""
        return (*self.first_voters, *SPARE_IDS[: self.spares])


def draw_metadata_scenario(random: Random) -> MetadataScenario:
    """Draw the metadata side: small logs and frequent snapshots, so that replicas often load one."""
    timeout_ms = random.choice((200, 400))
    scenario = MetadataScenario(
        election_timeout_ms=timeout_ms,
        fetch_timeout_ms=2 * timeout_ms,
        append_linger_ms=random.choice((0, 5, 25)),
        fetch_max_wait_ms=random.choice((100, timeout_ms)),
        fetch_snapshot_max_bytes=random.choice((700, 1_000_000)),
        observer_session_timeout_ms=random.choice((600, 3_000)),
        start_offset_lag_time_max_ms=random.choice((1_000, 604_800_000)),
        retention_bytes=random.choice((1_000, 8_000)),
        trim_interval_ms=random.choice((100, 500)),
        segment_bytes=random.choice((600, 4_000)),
        snapshot_bytes=random.choice((1_000, 4_000)),
        snapshot_interval_ms=random.choice((0, 1_500)),
        min_changed_ratio=random.choice((0.0, 0.3)),
        max_idle_interval_ms=random.choice((250, 500)),
        deaths=random.random() < 0.4,
        tiered=random.random() < 0.5,
        combined=random.choice((0, 0, 1, _VOTERS)),
        spares=random.choice((0, 1, 2)),
        auto_join=random.random() < 0.2,
        coordinators=False,
        acls=False,
        acls_open=True,
    )
    coordinators = not scenario.tiered and random.random() < _COORDINATORS_SHARE
    if not coordinators and random.random() < _ACLS_SHARE:
        scenario = replace(scenario, acls=True, acls_open=scenario.tiered or random.random() < 0.5)
    return with_roles(scenario, tiered=scenario.tiered, coordinators=coordinators)


def with_roles(scenario: MetadataScenario, *, tiered: bool | None, coordinators: bool | None) -> MetadataScenario:
    """Return the scenario with these roles, None for those it has, and with ACLs that suit them.

    Clients of coordinators have all rights. A tiered history begins with records, so that its topic is open at first.
    """
    tiered = scenario.tiered if tiered is None else tiered
    coordinators = scenario.coordinators if coordinators is None else coordinators
    return replace(
        scenario,
        tiered=tiered,
        coordinators=coordinators,
        acls=scenario.acls and not coordinators,
        acls_open=scenario.acls_open or tiered,
    )


def draw_scenario(random: Random, *, tiered: bool) -> Scenario:
    """Draw the brokers' side: three or four brokers, and fewer clients than in a simulation of brokers alone."""
    drawn = draw_broker_scenario(random)
    while drawn.pace != 1.0 or drawn.mood is Mood.PARTED:  # slow histories, whose recovery takes hours
        drawn = draw_broker_scenario(random)
    if tiered:
        drawn = replace(
            drawn,
            segment_bytes=random.choice((700, 1_000)),
            session_timeout_ms=600,
            heartbeat_interval_ms=150,
            topics=drawn.topics[:1],
        )
    return replace(
        drawn,
        brokers=random.choice((3, 3, 4)),
        producers=1,
        consumers=1,
        fetch_wait_max_ms=random.choice((200, 500)),
        produce_every_ms=random.choice((30.0, 60.0) if tiered else (60.0, 150.0)),
        io_delay_ms=random.choice((1.0, 5.0, 20.0)),
        io_inline_share=random.choice((0.8, 0.95)),
        drift=random.choice((0.0, 0.01, 0.05)),
        fault_every_ms=random.choice((50.0, 100.0, 200.0)),
        calm_share=random.choice((0.05, 0.1, 0.2)),
        checkpoint_interval_ms=random.choice((500, 5_000)),
        retention_interval_ms=500 if tiered else 2_000,
        mood=Mood.MIXED,
    )


def with_coordinators(scenario: Scenario, random: Random) -> Scenario:
    """Leave time between the faults: a transaction needs the leaders of several partitions."""
    return replace(
        scenario,
        fault_every_ms=random.choice((200.0, 400.0, 800.0)),
        produce_every_ms=random.choice((100.0, 400.0)),
        topics=(TopicScenario(name=INPUT, partitions=1, factor=3, is_clean=True),),
        io_delay_ms=random.choice((1.0, 5.0)),
    )
