"""The incidents that a history of the data plane counts."""

from tests.simulation.simulator import Counts


class ReplicationCounts(Counts):
    """Incidents of brokers and clients."""

    NAMES = (
        "elections",
        "unclean elections",
        "truncations",
        "ISR shrinks",
        "ISR expands",
        "restarts",
        "power losses",
        "wiped disks",
        "directory failures",
        "controlled shutdowns",
        "controller failovers",
        "reassignments",
        "acknowledged records",
        "duplicates without an offset",
        "records read",
        "truncations noticed",
        "refused in-sync sets",
        "fenced requests",
        "follower reads",
        "dead for good",
        "one-way cuts",
        "zombie hours",
        "clock steps",
        "full disks",
        "disk stalls",
        "deleted partitions",
        "keyed records",
        "checks of compacted logs",
    )
