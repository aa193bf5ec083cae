"""Reasons why Apache Kafka is better in some rows, and the next idea for each, for the page of results."""

from typing import Final, NamedTuple


class Reason(NamedTuple):
    """Reason for rows whose names contain `part`, and the idea to try next."""

    part: str
    reason: str
    idea: str


REASONS: Final = (
    Reason(
        "transactional produce",
        "In a closed loop each commit waits for the other producers' work, and Ottla serves two to three times as many"
        " transactions in that time. The rows of 200 transactions per second compare commits at an equal rate.",
        "Fewer Python calls per transaction between the connection and the coordinator.",
    ),
    Reason(
        "5,000 connections",
        "The client sends one request at a time from one thread, which limits both brokers.",
        "A client of several processes.",
    ),
    Reason(
        "franz-go",
        "The client's own work limits the rate: a broker takes less than 0.1 ms of processor time per MB.",
        "Several clients at once.",
    ),
    Reason(
        "rebalance",
        "A join writes six records and takes 0.3 ms of Python, and one event loop serves all members. Then partitions"
        " change hands in rounds of heartbeats. A heartbeat without changes takes less than half of Kafka's processor"
        " time.",
        "Fewer records a join; fewer rounds of heartbeats.",
    ),
    Reason(
        "sync produce",
        "One request at a time measures latency only: two wake-ups of the kernel and the Python code between them.",
        "Fewer calls between the socket and the log.",
    ),
    Reason(
        "end to end",
        "A record passes Produce, the wake-up of the waiting Fetch and its response in turn on one event loop.",
        "Answer a waiting fetch from the appended batch without another look at the log.",
    ),
    Reason(
        "metadata snapshot written",
        "The image is encoded record by record in Python, in slices that leave the event loop free.",
        "Compiled record encoders.",
    ),
    Reason(
        "fenced",
        "The controller generates one record per partition in Python.",
        "Records of equal shape from one template.",
    ),
    Reason(
        "the store's own speed",
        "The broker decrypts nothing, but copies each range twice between the HTTP client and the socket, on the core"
        " that the client needs, too.",
        "Ranges received into the buffer that is sent.",
    ),
)


def reason_for(name: str) -> Reason:
    """Return the reason of a row; it says so where none is known."""
    return next((each for each in REASONS if each.part in name), Reason(name, "Not analysed yet.", "A profile."))
