"""Reasons why Apache Kafka is better in some rows, and the next idea for each, for the page of results."""

from typing import Final, NamedTuple


class Reason(NamedTuple):
    """Reason for rows whose names contain `part`, and the idea to try next."""

    part: str
    reason: str
    idea: str


REASONS: Final = (
    Reason(
        "transactional produce, 100 producers",
        "One event loop is full. Apache Kafka spreads the transactions over both cores, for 1.6 times the processor"
        " time.",
        "Fewer Python calls per transaction between the connection and the coordinator.",
    ),
    Reason(
        "transactional produce",
        "In a closed loop each commit waits for the other producers' work, and Ottla serves more of them"
        " in the same time. The rows of 200 transactions per second compare commits at an equal rate.",
        "Fewer Python calls per transaction between the connection and the coordinator.",
    ),
    Reason(
        "transactions per second, commit",
        "EndTxn, the append of the decision and its response pass through Python code in turn.",
        "Fewer Python calls between the connection and the coordinator.",
    ),
    Reason(
        "5,000 connections",
        "Each request comes over another connection: a read, a log write and a send of their own on one event loop."
        " Apache Kafka takes more processor time, on both cores.",
        "The send is a quarter of the time: several cores (`ottla start --brokers N`).",
    ),
    Reason(
        "coordinator load",
        "The log of 200,000 offsets is read and folded in Python. A snapshot, the default, takes a tenth of that.",
        "The fold and the reader of records compiled.",
    ),
    Reason(
        "produce p99 meanwhile",
        "The returned broker's fetches of old data share the leader's event loop with each produce request.",
        "Smaller reads for a follower that is far behind.",
    ),
    *(
        Reason(
            part,
            "The processor time of the three processes, 1.2 ms a request at 200 a second, is all on the way to the"
            " response: two cores run them mostly in turn, each after a rest. A tier adds nothing.",
            "Fewer calls between a parked fetch and its response.",
        )
        for part in ("replicated produce", "produce beside a tier", "produce in turns")
    ),
    Reason(
        "franz-go",
        "The client's own work limits the rate: a broker takes less than 0.1 ms of processor time per MB.",
        "Several clients at once.",
    ),
    Reason(
        "acks=1, 8 partitions",
        "The producer's own work limits the rate: the broker takes less than a fifth of both cores, and runs scatter"
        " by 10 %.",
        "A producer on another machine, or on cores of its own.",
    ),
    Reason(
        "Java producer",
        "The producer's own work limits the rate, and the brokers differ by less than the runs of one broker.",
        "A producer on another machine, or on cores of its own.",
    ),
    Reason(
        "members, classic protocol",
        "One event loop serves the joins and syncs of all members, which Apache Kafka spreads over both cores for about"
        " twice the processor time.",
        "A straight path for JoinGroup.",
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
        "Python encodes the records in slices of 3 ms, with pauses while the event loop has other work, so that no"
        " heartbeat waits more than 12 ms (Apache Kafka: 60 to 250 ms).",
        "Batches packed without the builder of records, 0.2 us less per partition.",
    ),
    Reason(
        "fenced",
        "The controller generates one record per partition in Python.",
        "Records of equal shape from one template.",
    ),
    Reason(
        "consume",
        "The client's own work limits the rate: a broker takes 0.4 ms of processor time per MB.",
        "Several clients at once.",
    ),
)


def reason_for(name: str) -> Reason:
    """Return the reason of a row; it says so where none is known."""
    return next((each for each in REASONS if each.part in name), Reason(name, "Not analysed yet.", "A profile."))
