"""Registration of controllers (KIP-919)."""

import pytest

from broker.metadata.image.cluster_image import ControllerRegistration, RegisteredEndpoint
from broker.metadata.image.features import VersionRange
from broker.metadata.image.metadata_version import MetadataVersion
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.controller_registration import ControllerRegistrationRequest, Feature, Listener
from tests.broker.metadata.images import Cluster, incarnation_of


def registration(
    controller: int = 1, *, incarnation: int = 1, host: str = "h", port: int = 9093
) -> ControllerRegistrationRequest:
    return ControllerRegistrationRequest(
        controller_id=controller,
        incarnation_id=incarnation_of(controller, incarnation),
        listeners=[Listener("CONTROLLER", host, port, 0)],
        features=[Feature("metadata.version", 7, 29), Feature("kraft.version", 0, 1)],
    )


def test_controller_is_registered_with_its_endpoints_and_features() -> None:
    cluster = Cluster()
    response = cluster.write(cluster.controller.register_controller(registration()))
    assert (response.error_code, response.error_message) == (0, "")
    assert cluster.image.brokers.controllers[1] == ControllerRegistration(
        id=1,
        incarnation_id=incarnation_of(1),
        endpoints={"CONTROLLER": RegisteredEndpoint("h", 9093)},
        features={"kraft.version": VersionRange(0, 1), "metadata.version": VersionRange(7, 29)},
    )


def test_repeated_registration_writes_nothing_and_new_incarnation_replaces_it() -> None:
    cluster = Cluster()
    cluster.write(cluster.controller.register_controller(registration()))
    assert not cluster.controller.register_controller(registration()).records
    cluster.write(cluster.controller.register_controller(registration(incarnation=2, port=9094)))
    registered = cluster.image.brokers.controllers[1]
    assert (registered.incarnation_id, registered.endpoints["CONTROLLER"].port) == (incarnation_of(1, 2), 9094)


def test_registrations_survive_failover() -> None:
    cluster = Cluster()
    cluster.write(cluster.controller.register_controller(registration(3)))
    cluster.fail_over()
    assert 3 in cluster.image.brokers.controllers


@pytest.mark.parametrize(("host", "port"), [("", 9093), ("h", 0), ("h", 65_536)])
def test_unreachable_listeners_are_refused(host: str, port: int) -> None:
    with pytest.raises(KafkaError) as caught:
        Cluster().controller.register_controller(registration(host=host, port=port))
    assert caught.value.code is ErrorCode.INVALID_REGISTRATION


def test_negative_id_is_refused() -> None:
    with pytest.raises(KafkaError) as caught:
        Cluster().controller.register_controller(registration(-1))
    assert caught.value.code is ErrorCode.INVALID_REQUEST


def test_older_metadata_version_refuses_registration() -> None:
    cluster = Cluster(level=MetadataVersion.IV_3_6_2)
    with pytest.raises(KafkaError) as caught:
        cluster.controller.register_controller(registration())
    assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION
