"""Requests above a quota of `controller_mutation_rate` (KIP-599): refused where the version is strict, else throttled.

Each scenario has a client id, and so a bucket, of its own. A throttled connection is muted, so each step has its own.
"""

from collections.abc import Generator, Iterator
from contextlib import contextmanager

from protocol.messages import Message
from protocol.messages import alter_client_quotas as acq
from protocol.messages import create_partitions as cp
from protocol.messages import create_topics as ct
from protocol.messages import delete_topics as dt
from tests.interop.wire.harness import CLIENT_ID, WireHarness

Scenario = Generator[tuple[str, Message], Message | None, None]

RATE = 0.05
WAIT_MS = 30_000
STEPS = ("the first", "one more", "two more")
"""Steps of a scenario, each with the topic of its number; the first uses the whole quota."""


@contextmanager
def limited(harness: WireHarness, client_id: str) -> Iterator[None]:
    """Send the requests in this context as a client with a quota of its own."""
    _set_quota(harness, client_id, RATE)
    harness.client_id = client_id
    harness.reconnect()
    yield
    harness.client_id = CLIENT_ID
    harness.reconnect()
    _set_quota(harness, client_id, None)


def create_topics_above_quota(harness: WireHarness, version: int) -> Scenario:
    def request(name: str, *, validate_only: bool = False) -> Message:
        return ct.CreateTopicsRequest([ct.CreatableTopic(name, 2, 1)], WAIT_MS, validate_only)

    with limited(harness, f"creates-{version}"):
        for number, step in enumerate(STEPS):
            yield f"quota: {step}", request(f"quota-new-{version}-{number}")
            harness.reconnect()
        yield "quota: validate only", request(f"quota-new-{version}-9", validate_only=True)
        harness.reconnect()
        yield "quota: an existing topic", request(f"quota-new-{version}-0")


def create_partitions_above_quota(harness: WireHarness, version: int) -> Scenario:
    names = [f"quota-more-{version}-{number}" for number in range(len(STEPS))]
    harness.create_topics({name: (1, {}) for name in names})
    with limited(harness, f"extends-{version}"):
        for name, step in zip(names, STEPS, strict=True):
            yield (
                f"quota: {step}",
                cp.CreatePartitionsRequest([cp.CreatePartitionsTopic(name, 3, None)], WAIT_MS, False),
            )
            harness.reconnect()


def delete_topics_above_quota(harness: WireHarness, version: int) -> Scenario:
    names = [f"quota-old-{version}-{number}" for number in range(len(STEPS))]
    harness.create_topics({name: (2, {}) for name in names})
    with limited(harness, f"deletes-{version}"):
        for name, step in zip(names, STEPS, strict=True):
            if version < 6:
                yield f"quota: {step}", dt.DeleteTopicsRequest(topic_names=[name], timeout_ms=WAIT_MS)
            else:
                yield f"quota: {step}", dt.DeleteTopicsRequest([dt.DeleteTopicState(name)], timeout_ms=WAIT_MS)
            harness.reconnect()


def _set_quota(harness: WireHarness, client_id: str, rate: float | None) -> None:
    entity = [acq.AlterClientQuotasRequestEntityData("client-id", client_id)]
    change = acq.OpData("controller_mutation_rate", rate or 0.0, rate is None)
    answer = harness.call(
        acq.AlterClientQuotasRequest([acq.AlterClientQuotasRequestEntryData(entity, [change])], False), 1
    )
    assert isinstance(answer, acq.AlterClientQuotasResponse)
    assert answer.entries[0].error_code == 0, answer
    harness.settle()
