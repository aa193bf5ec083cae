"""The counters of remote reads."""

from protocol.lazy_dataclass import lazy_dataclass


@lazy_dataclass(slots=True)
class RemoteReadFigures:
    """Counters since the start.

    `refused` counts reads that found too many others open or waiting for a thread, `expired` requests whose time was
    over before all their reads were done, `from_replicas` reads that the local log of another replica answered.
    `waiting_for_quota` is the present number of reads that the quota holds back.
    """

    requests: int = 0
    bytes: int = 0
    errors: int = 0
    refused: int = 0
    waiting_for_quota: int = 0
    expired: int = 0
    from_replicas: int = 0
    read_ms: float = 0.0
