"""Resources that all connections of a server share."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from broker.clock import Clock
from broker.net.backlog import RequestBacklog
from broker.net.deferred_writes import DeferredWrites
from broker.net.idle import IdleOrder
from broker.net.loop_timers import EventLoopTimers
from broker.net.rate_limited_log import RateLimitedLog
from broker.net.receiver import ReceiveArena
from broker.net.request import OpenPipeline
from broker.net.turns import Turns

if TYPE_CHECKING:
    from broker.net.connection import AcceptedConnection


@dataclass(slots=True, eq=False)
class ServerResources:
    """Resources that all connections of a server share."""

    open_pipeline: OpenPipeline
    clock: Clock
    timers: EventLoopTimers
    turns: Turns
    writes: DeferredWrites
    arena: ReceiveArena
    backlog: RequestBacklog
    idle: IdleOrder["AcceptedConnection"]
    unauthenticated: IdleOrder["AcceptedConnection"]
    warnings: RateLimitedLog
    frame_bytes_max: int
    unauthenticated_frame_bytes_max: int
