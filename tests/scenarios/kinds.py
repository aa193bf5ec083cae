"""All kinds of scenarios, by the folder of their transcripts."""

from collections.abc import Callable, Mapping
from pathlib import Path

from tests.scenarios.consumer_groups.scenario import ConsumerGroupScenario
from tests.scenarios.groups.scenario import GroupScenario
from tests.scenarios.isr.scenario import IsrScenario
from tests.scenarios.quorum.scenario import QuorumScenario
from tests.scenarios.remote_log.scenario import RemoteLogScenario
from tests.scenarios.replication.scenario import ReplicationScenario
from tests.scenarios.streams_groups.scenario import StreamsGroupScenario
from tests.scenarios.tiered.scenario import TieredScenario
from tests.scenarios.transcript import Scenario, transcripts

HERE = Path(__file__).parent

KINDS: Mapping[str, Callable[[], Scenario]] = {
    "consumer_groups": ConsumerGroupScenario,
    "groups": GroupScenario,
    "isr": IsrScenario,
    "quorum": QuorumScenario,
    "remote_log": RemoteLogScenario,
    "replication": ReplicationScenario,
    "streams_groups": StreamsGroupScenario,
    "tiered": TieredScenario,
}


def transcript_name(path: Path) -> str:
    """Return the path of a transcript below this folder, without the suffix."""
    return path.relative_to(HERE).with_suffix("").as_posix()


def all_transcripts() -> list[tuple[str, Path]]:
    """Return every transcript with its kind."""
    return [(kind, path) for kind in KINDS for path in transcripts(HERE / kind)]
