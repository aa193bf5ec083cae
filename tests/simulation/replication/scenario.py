"""The parameters of a seed: number of brokers, topics, and severity of faults."""

from dataclasses import dataclass, replace
from enum import Enum
from random import Random
from typing import Final

from storage.config import MAX_LONG
from tests.simulation.weather import Weather, draw_weather

CONTROLLER_ID: Final = 0
FIRST_CLIENT_ID: Final = 101
RACKS: Final = ("rack-0", "rack-1")
CLUSTER_ID: Final = "simulated-cluster-0001"


class Mood(Enum):
    """The dominant kind of fault: all kinds, or one kind repeatedly.

    RESTLESS: leaders move often, and brokers learn of it late. MORTAL: brokers lose power, restart at once, and meet
    delayed requests of their former process. PARTED: links between two brokers alone are cut for long, and producers
    are slow. DEPOSED: brokers are cut off from the controller alone, for hours.
    """

    MIXED = "mixed"
    RESTLESS = "restless"
    MORTAL = "mortal"
    PARTED = "parted"
    DEPOSED = "deposed"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicScenario:
    """A topic. A clean one has min.insync.replicas 2 and no unclean elections; others allow both. Without an
    `assignment`, the controller places the partitions.
    """

    name: str
    partitions: int
    factor: int
    is_clean: bool
    assignment: tuple[int, ...] = ()

    @property
    def min_insync_replicas(self) -> int:
        return 2 if self.is_clean else 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """Parameters of a history; times in ms of simulated true time, `…_every_ms` are means.

    With eligible leader replicas (`elr`), records survive if one node at a time loses unsynced data or its disk.
    Kafka's rules do not guarantee that without them, so processes then die with their page cache kept.
    `restart_mean_ms` of 0 means any. `pace` stretches the times that are not named here. `mortality` is the probability
    that a minority of the brokers stays dead in the end. `length` multiplies the events. With `compacts` there is a
    compacted topic as well (`compacted_topic.py`). With a small `new_replicas_max` fetch sessions grow over several
    requests.
    """

    brokers: int
    directories: int
    topics: tuple[TopicScenario, ...]
    elr: bool
    producers: int
    consumers: int
    drift: float
    weather: Weather
    metadata_delay_ms: float
    metadata_commit_ms: float
    fault_every_ms: float
    calm_share: float
    produce_every_ms: float
    io_inline_share: float
    io_delay_ms: float
    session_timeout_ms: int
    heartbeat_interval_ms: int
    lag_time_max_ms: int
    fetch_wait_max_ms: int
    fetch_backoff_ms: int
    fetch_partition_max_bytes: int
    socket_timeout_ms: int
    fetchers: int
    request_timeout_ms: int
    delivery_timeout_ms: int
    segment_bytes: int
    flush_messages: int
    checkpoint_interval_ms: int
    retention_interval_ms: int
    restart_mean_ms: float
    in_bytes: bool
    mood: Mood
    pace: float = 1.0
    mortality: float = 0.0
    length: int = 1
    compacts: bool = False
    new_replicas_max: int = 200

    @property
    def broker_ids(self) -> range:
        return range(1, self.brokers + 1)


def draw_scenario(random: Random) -> Scenario:
    """Draw a scenario: mostly three brokers, the most common setup."""
    session_ms = random.choice((600, 1_000, 2_000))
    brokers = random.choice((3, 3, 3, 4, 5))
    scenario = Scenario(
        brokers=brokers,
        directories=random.choice((1, 1, 2)),
        topics=_draw_topics(random),
        elr=random.random() < 0.5,
        producers=random.choice((1, 2, 3)),
        consumers=random.choice((1, 1, 2)),
        drift=random.choice((0.0, 0.01, 0.1)),
        weather=draw_weather(random),
        metadata_delay_ms=random.choice((1.0, 5.0, 50.0, 400.0)),
        metadata_commit_ms=random.choice((1.0, 5.0, 30.0)),
        fault_every_ms=random.choice((150.0, 300.0, 600.0)),
        calm_share=random.choice((0.05, 0.15, 0.3)),
        produce_every_ms=random.choice((20.0, 60.0, 150.0)),
        io_inline_share=random.choice((0.3, 0.8, 0.95)),
        io_delay_ms=random.choice((1.0, 5.0, 40.0)),
        session_timeout_ms=session_ms,
        heartbeat_interval_ms=session_ms // 4,
        lag_time_max_ms=random.choice((300, 800, 2_000)),
        fetch_wait_max_ms=random.choice((50, 200, 500)),
        fetch_backoff_ms=random.choice((100, 1_000)),
        fetch_partition_max_bytes=random.choice((150, 1_000, 1_048_576)),
        socket_timeout_ms=random.choice((700, 1_500, 5_000)),
        fetchers=random.choice((1, 1, 2)),
        request_timeout_ms=random.choice((500, 2_000)),
        delivery_timeout_ms=random.choice((3_000, 10_000, 120_000)),
        segment_bytes=random.choice((700, 2_000, 100_000)),
        flush_messages=random.choice((MAX_LONG, MAX_LONG, MAX_LONG, 1, 5)),
        checkpoint_interval_ms=random.choice((50, 500, 5_000)),
        retention_interval_ms=random.choice((300, 2_000)),
        restart_mean_ms=0.0,
        in_bytes=random.random() < 0.1,
        mood=random.choices(tuple(Mood), (12, 4, 4, 4, 3))[0],
        mortality=0.3,
    )
    match scenario.mood:
        case Mood.MIXED:
            return scenario
        case Mood.RESTLESS:
            return replace(scenario, fault_every_ms=60.0, metadata_delay_ms=random.choice((5.0, 30.0, 100.0)))
        case Mood.MORTAL:
            slow = Weather(delay_ms=3.0, slow=random.choice((0.1, 0.3)), slow_ms=random.choice((100.0, 600.0)))
            return replace(scenario, elr=True, weather=slow, restart_mean_ms=5.0, metadata_delay_ms=3.0)
        case Mood.PARTED:
            return replace(
                scenario,
                weather=Weather(delay_ms=1.0),
                metadata_delay_ms=1.0,
                produce_every_ms=random.choice((400.0, 2_000.0)),
                fault_every_ms=2_000.0,
                io_delay_ms=1.0,
                checkpoint_interval_ms=5_000,
                retention_interval_ms=2_000,
                fetch_wait_max_ms=min(scenario.fetch_wait_max_ms, scenario.lag_time_max_ms // 2),
            )
        case Mood.DEPOSED:
            return _slowed(scenario)


def _slowed(scenario: Scenario) -> Scenario:
    """Return a scenario in which an hour costs few events."""
    return replace(
        scenario,
        weather=Weather(delay_ms=5.0),
        metadata_delay_ms=5.0,
        produce_every_ms=200_000.0,
        fault_every_ms=600_000.0,
        calm_share=0.03,
        session_timeout_ms=600_000,
        heartbeat_interval_ms=150_000,
        lag_time_max_ms=300_000,
        fetch_wait_max_ms=100_000,
        fetch_backoff_ms=60_000,
        socket_timeout_ms=300_000,
        request_timeout_ms=200_000,
        delivery_timeout_ms=3_600_000,
        checkpoint_interval_ms=600_000,
        retention_interval_ms=600_000,
        pace=1_000.0,
        length=5,
    )


def _draw_topics(random: Random) -> tuple[TopicScenario, ...]:
    clean = TopicScenario(name="clean", partitions=random.choice((1, 1, 2)), factor=3, is_clean=True)
    if random.random() < 0.4:
        return (clean,)
    unclean = TopicScenario(name="unclean", partitions=1, factor=random.choice((2, 3)), is_clean=False)
    return (clean, unclean) if random.random() < 0.8 else (unclean,)
