"""The current log among several of one partition: scenarios of a replica on broker 1 with directories a, b and c."""

import pytest
from immutables import Map

from broker.metadata.image.partition import (
    LOST_DIRECTORY,
    MIGRATING_DIRECTORY,
    UNASSIGNED_DIRECTORY,
    PartitionRegistration,
)
from broker.metadata.image.topic_image import TopicImage
from broker.runtime.partitions.duplicate_logs import current_log
from protocol.ids import BrokerId, LeaderEpoch
from protocol.primitives import Uuid
from storage.directories.checkpoints import TopicPartition
from storage.directories.log_dir import DuplicateLog, FoundLog, LogDir
from tests.support.harnesses.data_plane import topic_id

NOW, FORMER = topic_id(2), topic_id(1)
DIRECTORIES = {
    "no disk yet": UNASSIGNED_DIRECTORY,
    "a lost disk": LOST_DIRECTORY,
    "before disks had names": MIGRATING_DIRECTORY,
    **{name: Uuid(name.encode() * 16) for name in "abc"},
}
TOPICS = {"": NOW, "-of-the-former-topic": FORMER, "-without-an-id": None}
STORIES = """
    # The disk a failed. The partition was moved to other brokers and back, and a new log was made in b.
    logs in a, b                         | in sync, in b                | b goes on
    logs in a, b                         | eligible, in b               | b goes on
    logs in a, b                         | behind, in b                 | b goes on

    # Then b failed in turn, and it is a from which the replica has caught up since.
    logs in a, b                         | in sync, in a                | a goes on

    # The broker died before it had told the controller where the new log is; nobody counts on it yet.
    logs in a, b                         | behind, in no disk yet       | it begins anew
    logs in a, b                         | behind, in a lost disk       | it begins anew

    # It has told nobody, and they count on it. One of the two has all that was acknowledged; which one is not known.
    logs in a, b                         | in sync, in no disk yet      | an operator must say
    logs in a, b                         | eligible, in no disk yet     | an operator must say
    logs in a, b                         | last known, in no disk yet   | an operator must say
    logs in a, b                         | in sync, in a lost disk      | an operator must say
    logs in a, b                         | in sync, in before disks had names | an operator must say

    # Somebody has copied logs from the disk that the metadata names to others.
    logs in a, b                         | in sync, in c                | an operator must say
    logs in a, b, c                      | in sync, in c                | c goes on

    # The disk a failed; the topic was deleted, and another one came under its name.
    logs in a-of-the-former-topic, b     | in sync, in b                | b goes on
    logs in a-of-the-former-topic, b     | in sync, in no disk yet      | b goes on
    logs in a-without-an-id, b           | in sync, in no disk yet      | b goes on
    logs in a-of-the-former-topic, b-of-the-former-topic | in sync, in a | it begins anew

    # The replica was moved away for good, or its topic is gone.
    logs in a, b                         | on other brokers             | it begins anew
    logs in a, b                         | deleted                      | it begins anew
"""


def stories() -> list[tuple[str, str, str]]:
    lines = [line.strip() for line in STORIES.splitlines()]
    fields = [[field.strip() for field in line.split("|")] for line in lines if line and not line.startswith("#")]
    return [(logs, metadata, end) for logs, metadata, end in fields]


def found(text: str) -> list[FoundLog]:
    logs = []
    for word in text.removeprefix("logs in ").split(", "):
        name, topic = word[0], word[1:]
        directory = LogDir(f"/{name}", DIRECTORIES[name])
        logs.append(FoundLog(directory, f"/{name}/t-0", TopicPartition("t", 0), TOPICS[topic]))
    return logs


def topic(text: str) -> TopicImage | None:
    if text == "deleted":
        return None
    standing, _, place = text.partition(", in ")
    replicas = (2, 3) if standing == "on other brokers" else (1, 2)
    sets = {"in sync": "isr", "eligible": "elr", "last known": "last_known_elr"}
    of_one = {sets[standing]: (1,)} if standing in sets else {}
    registration = PartitionRegistration(
        replicas,
        isr=(1, 2) if standing == "in sync" else (2,),
        leader=BrokerId(2),
        leader_epoch=LeaderEpoch(3),
        partition_epoch=9,
        directories=(DIRECTORIES.get(place, UNASSIGNED_DIRECTORY), UNASSIGNED_DIRECTORY),
        elr=of_one.get("elr", ()),
        last_known_elr=of_one.get("last_known_elr", ()),
    )
    return TopicImage("t", NOW, Map({0: registration}))


@pytest.mark.parametrize(("logs", "metadata", "end"), stories())
def test_current_log_is_the_one_in_the_assigned_directory(logs: str, metadata: str, end: str) -> None:
    assert told(found(logs), topic(metadata)) == end


def told(candidates: list[FoundLog], image: TopicImage | None) -> str:
    try:
        log = current_log(candidates, image, 1)
    except DuplicateLog as refusal:
        named = all(candidate.path in str(refusal) for candidate in candidates)
        return "an operator must say" if named else str(refusal)
    return "it begins anew" if log is None else f"{log.directory.path.removeprefix('/')} goes on"
