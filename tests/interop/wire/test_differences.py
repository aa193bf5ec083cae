"""The same frames sent to Apache Kafka and to Ottla, in every version of every API.

Differences are recorded in `differences.json`. An unrecorded difference fails, and so does a recorded one that no
longer exists. Besides its scenario of `cases`, every API and version gets a truncated message and trailing bytes.
"""

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from protocol.api_keys import API_BY_KEY, ApiKey, request_class
from protocol.headers import encode_request
from protocol.messages import Message
from tests.interop.wire.cases import SCENARIOS, TOPICS
from tests.interop.wire.harness import CLIENT_ID, CLOSED, Plain, WireHarness, differences, plain
from tests.support.kafka.apache_kafka import apache_kafka, unavailable_reason
from tests.support.processes.ottla_node import OttlaNode

SETTINGS = {"num.partitions": "1", "group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "3"}
SETTINGS |= {f"transaction.state.log.{key}": "1" for key in ("num.partitions", "replication.factor", "min.isr")}
SETTINGS |= {"transaction.two.phase.commit.enable": "true", "unstable.api.versions.enable": "true"}
SETTINGS |= {f"share.coordinator.state.topic.{key}": "1" for key in ("num.partitions", "replication.factor", "min.isr")}
# Records have old timestamps. They must be read before retention is first applied, however slow the machine.
SETTINGS |= {"log.initial.task.delay.ms": "3600000"}
RECORDED: dict[str, dict[str, object]] = json.loads((Path(__file__).parent / "differences.json").read_text())
"""Rows by "API: step": `versions` (first and last), `fields` that differ in some of them, and the reason `why`."""

SIDE_VERSIONS = {
    ApiKey.FETCH: (12, 13),
    ApiKey.PRODUCE: (9, 13),
    ApiKey.DESCRIBE_CONFIGS: (4, 4),
    ApiKey.OFFSET_COMMIT: (9, 9),
    ApiKey.OFFSET_FETCH: (9, 9),
    ApiKey.LIST_GROUPS: (5, 5),
    ApiKey.JOIN_GROUP: (9, 9),
    ApiKey.SYNC_GROUP: (5, 5),
    ApiKey.HEARTBEAT: (4, 4),
    ApiKey.LEAVE_GROUP: (5, 5),
    ApiKey.CONSUMER_GROUP_DESCRIBE: (1, 1),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: (1, 1),
    ApiKey.STREAMS_GROUP_DESCRIBE: (0, 0),
    ApiKey.DESCRIBE_TRANSACTIONS: (0, 0),
    ApiKey.LIST_TRANSACTIONS: (2, 2),
    ApiKey.END_TXN: (5, 5),
    ApiKey.SHARE_GROUP_HEARTBEAT: (1, 1),
    ApiKey.SHARE_GROUP_DESCRIBE: (1, 1),
    ApiKey.SHARE_FETCH: (2, 2),
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: (1, 1),
    ApiKey.SHARE_ACKNOWLEDGE: (2, 2),
    ApiKey.DELETE_GROUPS: (2, 2),
}
"""Versions of requests that check the effect of another API: one that names topics, and one with topic ids."""

UNANSWERED = {ApiKey.PRODUCE, ApiKey.ADD_PARTITIONS_TO_TXN}
"""APIs whose default request gets no response from Kafka: acks=0, and no transaction at all."""

TIMED = {ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: "start_offset"}
"""Fields of a scenario that depend on when a leader has written its state. Other scenarios compare them, too."""

Outcome = dict[tuple[ApiKey, str, int], Plain]

pytestmark = pytest.mark.interop


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> tuple[Outcome, Outcome]:
    if (reason := unavailable_reason()) is not None:
        pytest.skip(reason)
    with apache_kafka(tmp_path_factory.mktemp("kafka"), SETTINGS, heap="512m") as bootstrap:
        theirs = outcome_at(bootstrap)
    with OttlaNode(tmp_path_factory.mktemp("ottla"), SETTINGS) as node:
        ours = outcome_at(node.bootstrap)
        assert "fault of the broker" not in node.log_text
    return theirs, ours


def outcome_at(bootstrap: str) -> Outcome:
    harness = WireHarness(bootstrap)
    try:
        harness.warm_up()
        harness.create_topics(TOPICS)
        return _outcome(harness)
    finally:
        harness.close()


def _outcome(harness: WireHarness) -> Outcome:
    outcome: Outcome = {}
    for api in SCENARIOS:
        limits = API_BY_KEY[api]
        harness.settle()
        for version in range(limits.min_version, limits.max_version + 1):
            for step, answer in run_scenario(harness, api, version):
                assert (api, step, version) not in outcome, f"two steps of {api.name} are called {step!r}"
                outcome[api, step, version] = answer
    return outcome


def run_scenario(harness: WireHarness, api: ApiKey, version: int) -> Iterator[tuple[str, Plain]]:
    """Yield (step, response) of the scenario in this version, and of malformed messages."""
    scenario = SCENARIOS[api](harness, version)
    answer: Message | None = None
    while True:
        try:
            step, request = scenario.send(answer)
        except StopIteration:
            break
        answer = harness.call(
            request,
            version
            if api == request.API_KEY and step != "the other topic identifier"
            else version_outside_scenario(request),
        )
        yield step, CLOSED if answer is None else plain(harness, answer)
    if api not in UNANSWERED:
        default = b"".join(encode_request(request_class(api)(), version, 7, CLIENT_ID))
        frame = default[4:]
        for step, changed in (
            ("a truncated message", frame[: (len(frame) + 9 + len(CLIENT_ID)) // 2]),
            ("trailing bytes", frame + b"ab"),
        ):
            answered = harness.exchange(len(changed).to_bytes(4) + changed)
            yield step, CLOSED if answered is None else "answered"


def version_outside_scenario(request: Message) -> int:
    """Return the version for a request that is not of the scenario's own API or version."""
    named, by_id = SIDE_VERSIONS[ApiKey(request.API_KEY)]
    text = repr(request)
    return named if re.search(r"(topic|name)='[^']", text) or "topics=[]" in text else by_id


def _is_timed(api: ApiKey, path: str) -> bool:
    return api in TIMED and path.endswith(TIMED[api])


@pytest.mark.parametrize("api", SCENARIOS)
def test_responses_match_kafka_or_recorded_differences(outcomes: tuple[Outcome, Outcome], api: ApiKey) -> None:
    theirs, ours = outcomes
    versions: dict[str, list[int]] = defaultdict(list)
    fields: dict[str, set[str]] = defaultdict(set)
    values: dict[str, list[str]] = defaultdict(list)
    for key in theirs:
        found = [each for each in differences(theirs[key], ours.get(key)) if not _is_timed(api, each[0])]
        if key[0] is api and found:
            name = f"{api.name}: {key[1]}"
            versions[name].append(key[2])
            fields[name] |= {re.sub(r"\[\d+\]", "", path) for path, _, _ in found}
            values[name] += [f"v{key[2]} {path}: Kafka {one!r}, Ottla {other!r}" for path, one, other in found]
    seen = {
        name: {"versions": [numbers[0], numbers[-1]], "fields": sorted(fields[name])}
        for name, numbers in versions.items()
    }
    recorded = {
        name: {key: row[key] for key in ("versions", "fields")}
        for name, row in RECORDED.items()
        if name.startswith(f"{api.name}: ")
    }
    assert seen.keys() == recorded.keys(), _shown(values, seen.keys() ^ recorded.keys())
    changed = [name for name in seen if seen[name] != recorded[name]]
    assert not changed, _shown(values, changed)


def test_recorded_differences_have_reasons() -> None:
    assert all(row["why"] for row in RECORDED.values())


def _shown(values: Mapping[str, Sequence[str]], names: Iterable[str]) -> str:
    """Return the values that differ in the named steps, and the steps that do not differ any more."""
    return "\n".join(f"{name}: {'; '.join(values[name]) or 'equal now'}" for name in sorted(names))
