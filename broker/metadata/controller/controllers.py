"""Registration of controllers: where each is reached, and which feature levels it can run with (KIP-919).

Controllers have no sessions, no epochs and no fencing; a registration stays until a new incarnation replaces it.
Changes of features are held against it.
"""

from broker.metadata.controller.result import ControllerResult
from broker.metadata.controller.state import ControllerState
from broker.metadata.image.cluster_image import ControllerRegistration
from broker.metadata.image.records import VersionedRecord
from broker.metadata.image.registered_listeners import check_listeners
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.controller_registration import ControllerRegistrationRequest, ControllerRegistrationResponse
from protocol.messages.metadata_records import ControllerEndpoint, ControllerFeature, RegisterControllerRecord


class Controllers:
    """The controller's part for its like."""

    def __init__(self, state: ControllerState) -> None:
        self._state = state

    def register(self, request: ControllerRegistrationRequest) -> ControllerResult[ControllerRegistrationResponse]:
        """Note a controller; what is registered already is not written again.

        Raises KafkaError UNSUPPORTED_VERSION below the level that knows the record, INVALID_REGISTRATION for a listener
        that nobody could reach, INVALID_REQUEST for an id that no node has (Kafka would store it).
        """
        if request.controller_id < 0:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{request.controller_id} is no node's id")
        if not self._state.version.supports_controller_registration:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"the cluster's metadata.version {self._state.version.release} knows no registrations of controllers",
            )
        check_listeners(request.listeners)
        record = _registration_record(request)
        response = ControllerRegistrationResponse(error_message=None)
        known = self._state.image.brokers.controllers.get(request.controller_id)
        if known == ControllerRegistration.from_record(record):
            return ControllerResult((), response)
        return ControllerResult([VersionedRecord(record, 0)], response)


def _registration_record(request: ControllerRegistrationRequest) -> RegisterControllerRecord:
    return RegisterControllerRecord(
        controller_id=request.controller_id,
        incarnation_id=request.incarnation_id,
        end_points=[
            ControllerEndpoint(name=each.name, host=each.host, port=each.port, security_protocol=each.security_protocol)
            for each in request.listeners
        ],
        features=[
            ControllerFeature(
                name=each.name,
                min_supported_version=each.min_supported_version,
                max_supported_version=each.max_supported_version,
            )
            for each in sorted(request.features, key=lambda feature: feature.name)
        ],
    )
