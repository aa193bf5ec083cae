"""Where handlers read metadata, and the few questions about it that several of them ask."""

from typing import Protocol

from broker.metadata.image.cluster_image import ClusterImage, RegisteredEndpoint
from broker.metadata.image.metadata_image import MetadataImage
from broker.metadata.image.partition import PartitionRegistration


class MetadataSource(Protocol):
    """Holds the latest published image."""

    @property
    def image(self) -> MetadataImage: ...


class ControllerSource(Protocol):
    """Knows which node to name as the controller, if any."""

    @property
    def controller_id(self) -> int | None: ...


def visible_controller(brokers: ClusterImage, listener: str, controller_id: int | None) -> int:
    """The broker to send controller requests to: the given one where clients reach it, else any; -1 if there is none.

    Every broker forwards, so that any will do.
    """
    alive = [broker.id for broker in brokers.alive(listener)]
    if controller_id in alive:
        return controller_id
    return alive[0] if alive else -1


def leader_endpoint(brokers: ClusterImage, leader: int, listener: str) -> RegisteredEndpoint | None:
    """Where a leader is reached through a listener; fenced ones count, they still hold the lead."""
    broker = brokers.get(leader)
    return None if broker is None else broker.endpoints.get(listener)


def offline_replicas(partition: PartitionRegistration, brokers: ClusterImage, listener: str) -> list[int]:
    """The replicas that a client of this listener cannot use now."""
    return [replica for replica in partition.replicas if not _is_online(partition, replica, brokers, listener)]


def _is_online(partition: PartitionRegistration, replica: int, brokers: ClusterImage, listener: str) -> bool:
    broker = brokers.get(replica)
    if broker is None or broker.fenced or listener not in broker.endpoints:
        return False
    return broker.has_online_directory(partition.directory_of(replica))
