"""Linux scheduling policy of a node (`sched(7)`).

Linux often wakes a process on the core of the process that woke it, although another core is idle (traced in a virtual
machine). Under the default policy the woken process also interrupts the running one. A leader that sends records to two
followers on its own machine then stands still after the first send, until that follower has appended the records.
Under SCHED_BATCH the leader sends to both first.
"""

import os
from typing import Final

from broker.logs import EventLog

INHERIT: Final = "inherit"
BATCH: Final = "batch"

_LOG: Final = EventLog("ottla.scheduling")


def apply_policy(policy: str) -> None:
    """Set the policy of the calling thread and of threads that it starts later. Log a policy that cannot be set."""
    if policy != BATCH:
        return
    if not hasattr(os, "SCHED_BATCH"):
        _LOG.info("This system has no SCHED_BATCH; the node keeps the inherited policy")
        return
    try:
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    except OSError as error:
        _LOG.warning(
            "The system refused the scheduling policy; the node keeps the inherited one",
            policy=policy,
            error=error.strerror,
        )
