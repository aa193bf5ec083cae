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
CASES = """
    # Disk a failed. The partition was reassigned to other brokers and back, with a new log in b.
    logs in a, b                         | in sync, in b                | b is used
    logs in a, b                         | eligible, in b               | b is used
    logs in a, b                         | behind, in b                 | b is used

    # Disk b failed later, and the replica has caught up with its log in a.
    logs in a, b                         | in sync, in a                | a is used

    # The broker stopped before it reported the directory of the new log; the replica is not in sync.
    logs in a, b                         | behind, in no disk yet       | a new log is created
    logs in a, b                         | behind, in a lost disk       | a new log is created

    # The broker reported no directory of an in-sync or eligible replica; either log may have the acknowledged records.
    logs in a, b                         | in sync, in no disk yet      | an operator must decide
    logs in a, b                         | eligible, in no disk yet     | an operator must decide
    logs in a, b                         | last known, in no disk yet   | an operator must decide
    logs in a, b                         | in sync, in a lost disk      | an operator must decide
    logs in a, b                         | in sync, in before disks had names | an operator must decide

    # An operator copied logs from the assigned disk to other disks.
    logs in a, b                         | in sync, in c                | an operator must decide
    logs in a, b, c                      | in sync, in c                | c is used

    # Disk a failed; the topic was deleted, and a new topic has its name.
    logs in a-of-the-former-topic, b     | in sync, in b                | b is used
    logs in a-of-the-former-topic, b     | in sync, in no disk yet      | b is used
    logs in a-without-an-id, b           | in sync, in no disk yet      | b is used
    logs in a-of-the-former-topic, b-of-the-former-topic | in sync, in a | a new log is created

    # The replica was reassigned to other brokers, or its topic was deleted.
    logs in a, b                         | on other brokers             | a new log is created
    logs in a, b                         | deleted                      | a new log is created
"""


def cases() -> list[tuple[str, str, str]]:
    lines = [line.strip() for line in CASES.splitlines()]
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


@pytest.mark.parametrize(("logs", "metadata", "end"), cases())
def test_current_log_is_the_one_in_the_assigned_directory(logs: str, metadata: str, end: str) -> None:
    assert decision(found(logs), topic(metadata)) == end


def decision(candidates: list[FoundLog], image: TopicImage | None) -> str:
    try:
        log = current_log(candidates, image, 1)
    except DuplicateLog as refusal:
        named = all(candidate.path in str(refusal) for candidate in candidates)
        return "an operator must decide" if named else str(refusal)
    return "a new log is created" if log is None else f"{log.directory.path.removeprefix('/')} is used"
