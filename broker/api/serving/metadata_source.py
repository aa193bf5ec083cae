"""The seam between handlers and the published metadata, and look-ups that several handlers share."""

from typing import Protocol

from broker.metadata.image.cluster_image import ClusterImage, RegisteredEndpoint
from broker.metadata.image.metadata_image import MetadataImage
from broker.metadata.image.partition import PartitionRegistration


class MetadataSource(Protocol):
    """Holds the latest published image."""

    @property
    def image(self) -> MetadataImage: ...


class ControllerSource(Protocol):
    """Knows the node that responses name as the controller, if any."""

    @property
    def controller_id(self) -> int | None: ...


def visible_controller(brokers: ClusterImage, listener: str, controller_id: int | None) -> int:
    """Return the broker that clients send controller requests to, -1 if there is none.

    Return `controller_id` if clients of the listener reach that broker, else any live broker, because every broker
    forwards.
    """
    alive = [broker.id for broker in brokers.alive(listener)]
    if controller_id in alive:
        return controller_id
    return alive[0] if alive else -1


def leader_endpoint(brokers: ClusterImage, leader: int, listener: str) -> RegisteredEndpoint | None:
    """Return a leader's endpoint of a listener. A fenced broker counts, because it still leads."""
    broker = brokers.get(leader)
    return None if broker is None else broker.endpoints.get(listener)


def offline_replicas(partition: PartitionRegistration, brokers: ClusterImage, listener: str) -> list[int]:
    """Return the replicas that a client of this listener cannot use now."""
    return [replica for replica in partition.replicas if not _is_online(partition, replica, brokers, listener)]


def _is_online(partition: PartitionRegistration, replica: int, brokers: ClusterImage, listener: str) -> bool:
    broker = brokers.get(replica)
    if broker is None or broker.fenced or listener not in broker.endpoints:
        return False
    return broker.has_online_directory(partition.directory_of(replica))
