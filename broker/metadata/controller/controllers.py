"""Registration of controllers: endpoints and supported feature levels (KIP-919).

Controllers have no sessions, epochs or fencing; a registration remains until a new incarnation replaces it. Feature
updates are checked against it.
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
    """The command ControllerRegistration."""

    def __init__(self, state: ControllerState) -> None:
        self._state = state

    def register(self, request: ControllerRegistrationRequest) -> ControllerResult[ControllerRegistrationResponse]:
        """Register a controller; an identical registration is not written again.

        Raises KafkaError UNSUPPORTED_VERSION at a metadata.version without the record, INVALID_REGISTRATION for an
        unreachable listener, INVALID_REQUEST for a negative id (Kafka would store it).
        """
        if request.controller_id < 0:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"controller id {request.controller_id} is negative")
        if not self._state.version.supports_controller_registration:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"metadata.version {self._state.version.release} does not support controller registrations",
            )
        check_listeners(request.listeners)
        record = _registration_record(request)
        response = ControllerRegistrationResponse(error_message="")
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
