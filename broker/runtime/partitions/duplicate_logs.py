"""The choice between several logs of one partition, found in the log directories of one broker (KIP-858).

There are several if a directory was offline while its replica was moved away and back, or while its topic was deleted
and created again: the new log went to another directory. The metadata names the directory of a replica once the
controller knows it. Pure: this module opens and removes no logs.
"""

from collections.abc import Sequence

from broker.metadata.image.partition import PartitionRegistration
from broker.metadata.image.topic_image import TopicImage
from storage.directories.log_dir import DuplicateLog, FoundLog


def current_log(found: Sequence[FoundLog], topic: TopicImage | None, broker_id: int) -> FoundLog | None:
    """Return the current log; None if the replica is not assigned to this broker, or may start with a new log.

    Logs of other topics of that name, and logs in directories that the metadata does not name, are outdated. If the
    metadata names none of the directories, no log is known to have the acknowledged records: raises DuplicateLog,
    unless the replica may start anew.
    """
    registration = None if topic is None else topic.partition(found[0].partition.partition)
    if topic is None or registration is None or broker_id not in registration.replicas:
        return None
    of_topic = [log for log in found if log.topic_id == topic.id]
    if len(of_topic) <= 1:
        return of_topic[0] if of_topic else None
    named = registration.directory_of(broker_id)
    in_place = [log for log in of_topic if log.directory.id == named]
    if not in_place and _is_relied_on(registration, broker_id):
        raise DuplicateLog(log.path for log in of_topic)
    return in_place[0] if in_place else None


def _is_relied_on(registration: PartitionRegistration, broker_id: int) -> bool:
    """Whether this replica's records count for the high watermark or for an election."""
    return broker_id in (*registration.isr, *registration.elr, *registration.last_known_elr)
