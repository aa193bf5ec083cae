"""Clients of served logs, closed after each test."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import pytest

from broker.client import Client, ClientConfig
from spark_jobs.metadata_source.metadata_log import MetadataLogClient
from tests.support.fakes.served_metadata_log import ServedMetadataLog

ClientFactory: TypeAlias = Callable[..., MetadataLogClient]

QUICK = {"retry.backoff.ms": "1", "default.api.timeout.ms": "2000"}


@pytest.fixture
def open_client() -> Iterator[ClientFactory]:
    """Return a factory of clients of a log, by default with sleeps of no length."""
    with contextlib.ExitStack() as opened:

        def factory(served: ServedMetadataLog, cluster_id: str | None = None, **options: Any) -> MetadataLogClient:
            sleep = options.pop("sleep", lambda _: None)
            client = Client(ClientConfig.parse(served.address, QUICK), sleep=sleep)
            return opened.enter_context(
                contextlib.closing(MetadataLogClient(client, cluster_id, sleep=sleep, **options))
            )

        yield factory
