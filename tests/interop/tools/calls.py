"""Calls for the comparison with Kafka's tools, and the cluster's content that they see."""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support.processes.ottla_node import OttlaNode, run_ottla

FIGURES = re.compile(r"[0-9]+(?:\.[0-9]+(?:E-?[0-9]+)?)?")
OBJECT = re.compile(r'\{"partition"[^}]*\}')
SPACES = re.compile(r"[ \t]+")


CONTROLLER_CONFIGS = (
    "--describe --entity-type brokers --entity-name 1",
    "--alter --entity-type brokers --entity-name 1 --add-config log.cleaner.threads=2",
    "--describe --entity-type brokers --entity-name 1",
    "--alter --entity-type topics --entity-name t --add-config retention.ms=7200000",
    "--alter --entity-type groups --entity-name g --add-config consumer.session.timeout.ms=50000",
    "--alter --entity-type topics --entity-name nope --add-config retention.ms=7200000",
    "--alter --entity-type brokers --entity-name 1 --delete-config log.cleaner.threads",
    "--describe --entity-type topics --entity-name t",
    "--describe --entity-type users --entity-name u",
)
"""Actions of kafka-configs at a controller; Kafka's controllers describe nodes only."""


def prepare(bootstrap: str) -> None:
    """Create the topics `t` (3 partitions) and `u` (with the records a to d), and the group `readers` of `u`."""
    at = ("--bootstrap-server", bootstrap)
    run_ottla("topics", *at, "--create", "--topic", "t", "--partitions", "3")
    run_ottla("topics", *at, "--create", "--topic", "u", "--partitions", "1")
    run_ottla("console-producer", *at, "--topic", "u", stdin="a\nb\nc\nd\n")
    for group in ("kafka", "ottla", "perf-kafka", "perf-ottla"):
        reset = ("--add-config", "share.auto.offset.reset=earliest")
        run_ottla("configs", *at, "--alter", "--entity-type", "groups", "--entity-name", group, *reset)
    for group in ("readers", "app-kafka", "app-ottla"):
        read = ("--topic", "u", "--from-beginning", "--max-messages", "3", "--group", group)
        run_ottla("console-consumer", *at, *read)
    for side in ("kafka", "ottla"):
        for topic in ("s-changelog", "r-repartition", "KTABLE-FK-JOIN-SUBSCRIPTION-RESPONSE-0000000009-topic", "out"):
            run_ottla("topics", *at, "--create", "--topic", f"app-{side}-{topic}", "--partitions", "1")


def as_is(text: str) -> str:
    return text


def sorted_lines(text: str) -> str:
    """Sort lines whose order Kafka leaves to a hash table."""
    return "\n".join(sorted(text.splitlines()))


def sorted_objects(text: str) -> str:
    """Sort the parts of JSON text whose order Kafka leaves to a hash table."""
    return OBJECT.sub("{}", text) + "\n".join(sorted(OBJECT.findall(text)))


def without_figures(text: str) -> str:
    """Hide figures that differ between two measurements, and the names of topics of each side."""
    return FIGURES.sub("#", text).replace("-kafka", "").replace("-ottla", "")


def events(text: str) -> str:
    """Return events without times, rates and the order of their fields, which Kafka's tools leave to chance.

    The offsets of records depend on the calls before.
    """
    found = [json.loads(line) for line in text.splitlines()]
    for event in found:
        for field in ("timestamp", "avg_throughput", "offset"):
            event.pop(field, None)
        for partition in event.get("partitions", ()):
            if "offsets" in partition:
                partition["offsets"].sort()
    return "\n".join(json.dumps(event, sort_keys=True) for event in found)


@dataclass(frozen=True)
class Call:
    """A call of a script. `{controller}` and `{node_data}` in the options are replaced; `connects` adds the server."""

    script: str
    options: tuple[str, ...]
    mask: Callable[[str], str] = as_is
    action_first: bool = False
    connects: bool = True
    is_usage: bool = False
    """The call is a usage error: Kafka prints its help, ours the error."""

    def arguments(self, node: OttlaNode, directory: Path, side: str) -> list[str]:
        """Return the command line; `side` makes the names of groups different for the two programs."""
        values = {
            "{broker}": node.bootstrap,
            "{controller}": f"127.0.0.1:{node.controller_port}",
            "{log}": str(node.data / "u-0" / f"{0:020d}.log"),
            "{offsets}": str(directory / "offsets.json"),
            "{moves}": str(directory / "moves.json"),
            "{csv}": str(directory / "offsets.csv"),
        }
        write_files(directory)
        options = [values.get(option, option).replace("{side}", side) for option in self.options]
        server = ["--bootstrap-server", node.bootstrap] if self.connects else []
        if self.action_first:
            return [options[0], *server, *options[1:]]
        return [*server, *options]

    def __str__(self) -> str:
        return " ".join((self.script.removeprefix("kafka-"), *self.options))


def write_files(directory: Path) -> None:
    """Write the JSON files that calls name."""
    record = {"topic": "t", "partition": 0, "offset": 0}
    (directory / "offsets.json").write_text(json.dumps({"version": 1, "partitions": [record]}))
    (directory / "offsets.csv").write_text("u,0,1\n")
    move = {"topic": "t", "partition": 0, "replicas": [1], "log_dirs": ["any"]}
    (directory / "moves.json").write_text(json.dumps({"version": 1, "partitions": [move]}))


def calls(script: str, *options: str, mask: Callable[[str], str] = as_is, **more: bool) -> list[Call]:
    """Return a call for each text of options, split at spaces."""
    return [Call(f"kafka-{script}", tuple(text.split()), mask, **more) for text in options]


def _offsets() -> Sequence[Call]:
    return [
        *calls(
            "get-offsets",
            "",
            "--topic u --time earliest",
            "--topic-partitions t:1-,u",
            "--topic t --partitions 0,2",
            "--time -3",
            "--time earliest-local",
            "--time latest-tiered",
            "--time 99999999999999",
            "--exclude-internal-topics",
            "--topic nope",
            "--topic-partitions t:1-0",
        ),
        *calls("get-offsets", "--time soon", "--partitions x", "--topic-partitions t --topic u", is_usage=True),
    ]


def _groups() -> Sequence[Call]:
    lists = (
        "--list",
        "--list --consumer",
        "--list --share",
        "--list --group-type classic",
        "--list --protocol consumer",
    )
    return [
        *calls("groups", *lists, mask=words),
        *calls("groups", "", "--list --share --streams", "--list --share --protocol x", is_usage=True),
        *calls("groups", "--list --group-type bad", is_usage=True),
        *calls("consumer-groups", "--list", "--describe --group readers", mask=words),
        *calls("share-groups", "--list"),
        *calls("streams-groups", "--list"),
    ]


def words(text: str) -> str:
    """Join the words of each line by one space, and sort lines: Kafka's tools pad and order some of them by chance."""
    return "\n".join(sorted(SPACES.sub(" ", line).strip() for line in text.strip().splitlines()))


def _cluster() -> Sequence[Call]:
    queries = ("cluster-id", "list-endpoints", "list-endpoints --include-fenced-brokers", "unregister --id 9")
    by_controller = [f"{text} --bootstrap-controller {{controller}}" for text in queries if "fenced" not in text]
    return [
        *calls("cluster", *queries, action_first=True),
        *calls("cluster", *by_controller, connects=False),
        *calls(
            "reassign-partitions",
            "--bootstrap-controller {controller} --list",
            "--bootstrap-controller {controller} --cancel --preserve-throttles --reassignment-json-file {moves}",
            connects=False,
            mask=words,
        ),
        *calls(
            "reassign-partitions",
            "--bootstrap-controller {controller} --verify --reassignment-json-file {moves}",
            connects=False,
            is_usage=True,
        ),
        *calls(
            "configs",
            *(f"--bootstrap-controller {{controller}} {action}" for action in CONTROLLER_CONFIGS),
            connects=False,
        ),
        *calls("features", "describe", mask=without_epoch),
        *calls("metadata-quorum", "describe --status", mask=without_figures),
        *calls("broker-api-versions", ""),
        *calls("log-dirs", "--describe --topic-list t", mask=sorted_objects),
        *calls("leader-election", "--election-type preferred --all-topic-partitions", mask=sorted_lines),
        *calls("reassign-partitions", "--verify --reassignment-json-file {moves}", "--list"),
        *calls("delete-records", "--offset-json-file {offsets}"),
        *calls("transactions", "list", mask=words),
    ]


def _configs() -> Sequence[Call]:
    return [
        *calls("topics", "--list", "--describe --topic t", mask=words),
        *calls("configs", "--describe --entity-type topics --entity-name t"),
        *calls(
            "client-metrics",
            "--list",
            "--alter --name M --metrics org.apache.kafka.producer.,x --interval 10000 --match client_id=a",
            "--describe",
            "--describe --name M",
            "--describe --name N",
            "--list",
            "--delete --name N",
            "--delete --name M",
        ),
        *calls(
            "client-metrics",
            "--alter",
            "--delete",
            "--alter --delete",
            "--list --name x",
            "--alter --name M --interval x",
            "--delete --name M --interval 4",
            "--describe --generate-name",
            is_usage=True,
        ),
    ]


def _records() -> Sequence[Call]:
    return [
        *calls("console-consumer", "--topic u --from-beginning --max-messages 4"),
        *calls("dump-log", "--files {log}", "--files {log} --print-data-log", connects=False, mask=without_directory),
        *calls(
            "producer-perf-test",
            "--topic p --num-records 50 --throughput -1 --record-size 10",
            mask=without_figures,
        ),
        *calls("consumer-perf-test", "--topic u --num-records 4", mask=without_figures),
        *calls("verifiable-producer", "--topic v --max-messages 3 --value-prefix 7", mask=events),
        *calls(
            "verifiable-share-consumer",
            "--topic u --group-id s1-{side} --max-messages 4 --offset-reset-strategy earliest"
            " --acknowledgement-mode sync",
            "--topic u --group-id s2-{side} --max-messages 4 --offset-reset-strategy earliest"
            " --acknowledgement-mode sync --verbose",
            mask=events,
        ),
        *calls("verifiable-consumer", "--topic u --group-id v1-{side} --max-messages 4", mask=events),
        *calls("verifiable-consumer", "--topic u --group-id v2-{side} --max-messages 4 --verbose", mask=events),
        *calls(
            "e2e-latency",
            "--topic lat-{side} --num-records 5 --producer-acks all --record-size 10",
            mask=without_figures,
        ),
        *calls(
            "console-share-consumer",
            "--topic u --group {side} --max-messages 4 --formatter-property print.delivery=true"
            " --formatter-property print.offset=true",
        ),
        *calls(
            "share-consumer-perf-test",
            "--topic u --group perf-{side} --num-records 4",
            mask=without_figures,
        ),
    ]


def without_epoch(text: str) -> str:
    """Hide the epoch of features, which is the end of the metadata that the answering node has applied."""
    return re.sub(r"Epoch: \d+", "Epoch: -", text)


def without_directory(text: str) -> str:
    return re.sub(r"/\S+/data/", "", text)


def _streams_resets() -> Sequence[Call]:
    """Resets of an application of each side: dry runs, errors, one reset, and its effect."""
    to: tuple[str, ...] = (
        "",
        "--to-latest",
        "--to-offset 2",
        "--to-offset 300",
        "--shift-by -1",
        "--shift-by -100",
        "--by-duration P1D",
    )
    to += ("--to-datetime 2090-01-01T00:00:00.000", "--from-file {csv}")
    application = "--application-id app-{side}"
    others = (
        "",
        "--input-topics u --intermediate-topics t",
        "--input-topics u,nope",
        "--input-topics nope --intermediate-topics nix",
        "--internal-topics app-{side}-s-changelog",
        "--internal-topics app-{side}-out",
    )
    return [
        *calls("streams-application-reset", "", f"{application} --to-latest --to-earliest", is_usage=True),
        *calls(
            "streams-application-reset",
            *(f"{application} --dry-run --input-topics u {each}" for each in to),
            *(f"{application} --dry-run {each}".strip() for each in others),
            "--application-id unknown --dry-run --input-topics u --shift-by -1",
            f"{application} --input-topics u --intermediate-topics t --internal-topics app-{{side}}-s-changelog",
            f"{application}",
            f"{application} --dry-run",
            mask=of_one_side,
        ),
        *calls("consumer-groups", "--describe --group app-{side}", mask=of_one_side),
    ]


def of_one_side(text: str) -> str:
    """Hide the side in names, and sort lines and lists, whose order Kafka leaves to hash tables."""
    hidden = words(re.sub(r"-(kafka|ottla)\b", "", text).replace("Topic:nix", "Topic: nix"))
    return re.sub(r"\[(.*)\]", lambda found: str(sorted(found[1].split(", "))), hidden)


CALLS: list[Call] = [*_offsets(), *_groups(), *_cluster(), *_configs(), *_records(), *_streams_resets()]
