"""Linux scheduling policy of a node (`sched(7)`).

A virtual machine often wakes a process on the core that woke it, although another core is idle: the guest cannot tell
an idle core from one that its host has taken away. Under the default policy the woken process also interrupts the one
that runs. A leader that answers the fetches of two followers on its own machine then stands still after the first
answer, until that follower has appended the records. Under SCHED_BATCH it answers both first.
"""

import os
from typing import Final

from broker.logs import EventLog

INHERIT: Final = "inherit"
BATCH: Final = "batch"
POLICIES: Final = (INHERIT, BATCH)

_LOG: Final = EventLog("ottla.scheduling")


def apply_policy(policy: str) -> None:
    """Set the policy of this thread and of those that it starts; log it where the system refuses."""
    if policy != BATCH:
        return
    if not hasattr(os, "SCHED_BATCH"):
        _LOG.info("This system has no scheduling policy for batches")
        return
    try:
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    except OSError as error:
        _LOG.warning("The system refused the scheduling policy of the node", policy=policy, error=error.strerror)
