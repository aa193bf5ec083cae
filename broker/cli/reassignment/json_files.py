"""The JSON files of kafka-reassign-partitions: current and target replicas of partitions."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from broker.cli.shared.failure import CommandFailed
from storage.directories.checkpoints import TopicPartition

VERSION = 1
ANY_DIRECTORY = "any"

Assignment = dict[TopicPartition, list[int]]


def read_assignment(path: str) -> Assignment:
    """Read the target replicas. Raises CommandFailed."""
    document = _read(path)
    try:
        rows = [
            (TopicPartition(row["topic"], int(row["partition"])), [int(broker) for broker in row["replicas"]])
            for row in document["partitions"]
        ]
        directories = [each for row in document["partitions"] for each in row.get("log_dirs", ())]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CommandFailed(f"{path} is not a reassignment JSON file: {error}.") from error
    if not rows:
        raise CommandFailed("Partition reassignment list cannot be empty")
    _check(rows, directories)
    return dict(rows)


def _check(rows: Iterable[tuple[TopicPartition, list[int]]], directories: Iterable[str]) -> None:
    seen: set[TopicPartition] = set()
    for partition, replicas in rows:
        if partition in seen:
            raise CommandFailed(f"Partition reassignment contains duplicate topic partitions: {partition}")
        if not replicas:
            raise CommandFailed(f"Partition replica list cannot be empty: {partition}")
        if len(set(replicas)) < len(replicas):
            raise CommandFailed(f"Partition replica lists may not contain duplicate entries: {partition}")
        seen.add(partition)
    if any(each != ANY_DIRECTORY for each in directories):
        raise CommandFailed('log_dirs: moves between directories are not implemented in this version; use "any".')


def read_topics(path: str) -> list[str]:
    """Read the topics of --topics-to-move-json-file. Raises CommandFailed."""
    document = _read(path)
    try:
        topics = [str(row["topic"]) for row in document["topics"]]
    except (KeyError, TypeError) as error:
        raise CommandFailed(f"{path} does not list topics: {error}.") from error
    twice = sorted({topic for topic in topics if topics.count(topic) > 1})
    if twice:
        raise CommandFailed(f"List of topics to reassign contains duplicate entries: {', '.join(twice)}")
    return topics


def assignment_json(assignment: Mapping[TopicPartition, list[int]]) -> str:
    """Return the JSON of an assignment file, on one line."""
    partitions = [
        {
            "topic": partition.topic,
            "partition": partition.partition,
            "replicas": replicas,
            "log_dirs": [ANY_DIRECTORY] * len(replicas),
        }
        for partition, replicas in sorted(assignment.items())
    ]
    return json.dumps({"version": VERSION, "partitions": partitions}, separators=(",", ":"))


def _read(path: str) -> dict[str, Any]:
    """Read a JSON object. Raises CommandFailed."""
    try:
        with open(path, encoding="utf-8") as file:
            document = json.load(file)
    except OSError as error:
        raise CommandFailed(f"cannot read {path}: {error.strerror}.") from error
    except ValueError as error:
        raise CommandFailed(f"{path} is not JSON: {error}.") from error
    if not isinstance(document, dict):
        raise CommandFailed(f"{path} is not a JSON object.")
    if document.get("version", VERSION) != VERSION:
        raise CommandFailed(f"{path}: version {document['version']} is not supported; use {VERSION}.")
    return document
