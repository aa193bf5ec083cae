"""Metadata propagation to a broker: Apache Kafka answers a change before the broker has applied it."""

import time

from broker.client import ClientConfig, Connection, Endpoint
from protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntityData,
    AlterClientQuotasRequestEntryData,
    AlterClientQuotasResponse,
    OpData,
)
from protocol.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)

TIMEOUT_S = 60


class MetadataLag:
    """A probe of a broker's metadata lag: it changes a quota and waits for it, since metadata is applied in order."""

    def __init__(self, bootstrap: str) -> None:
        endpoint = Endpoint.parse(bootstrap)
        self._connection = Connection.open(endpoint, ClientConfig((endpoint,)))
        self._limit = 1000.0

    def close(self) -> None:
        self._connection.close()

    def catch_up(self) -> None:
        """Wait for two changes: the first may be published with the awaited change, before that takes effect."""
        for _ in range(2):
            self._limit += 1
            self._change()
            deadline = time.monotonic() + TIMEOUT_S
            while self._known() != self._limit:
                assert time.monotonic() < deadline, "the broker does not apply its controller's changes"
                time.sleep(0.001)

    def _change(self) -> None:
        user = AlterClientQuotasRequestEntityData("user", "news")
        entry = AlterClientQuotasRequestEntryData([user], [OpData("producer_byte_rate", self._limit)])
        answer = self._connection.call(AlterClientQuotasRequest([entry]), AlterClientQuotasResponse)
        assert [each.error_code for each in answer.entries] == [0]

    def _known(self) -> float | None:
        request = DescribeClientQuotasRequest([ComponentData("user", 0, "news")])
        answer = self._connection.call(request, DescribeClientQuotasResponse)
        return next((value.value for entry in answer.entries or [] for value in entry.values), None)
