"""Valid and invalid admin calls of three client libraries, and their outcomes in comparable form.

Every call is a named function that takes a `Subject` and returns plain data or raises the library's error. `run_all`
makes all calls in order against one cluster and masks values that differ by nature (ids, ports, times, paths, hosts).
"""

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import aiokafka.admin
import aiokafka.errors
import kafka
import kafka.admin
from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka import admin as ck

from tests.interop.metadata_lag import MetadataLag

TIMEOUT_S = 30
PROSE = {"error_message", "documentation", "message", "description"}
"""Fields whose text is specific to each implementation."""


@dataclass
class Subject:
    """The cluster under test, and one admin client of each library."""

    bootstrap: str
    librdkafka: ck.AdminClient = field(init=False)
    kafka_python: Any = field(init=False)
    _metadata_lag: MetadataLag = field(init=False)

    def __post_init__(self) -> None:
        self.librdkafka = ck.AdminClient({"bootstrap.servers": self.bootstrap})
        self.kafka_python = kafka.admin.KafkaAdminClient(bootstrap_servers=self.bootstrap)
        self._metadata_lag = MetadataLag(self.bootstrap)

    def settle(self) -> None:
        """Wait until the broker has applied its controller's decisions; Apache Kafka answers before that."""
        self._metadata_lag.catch_up()

    def aiokafka(self, call: Callable[[Any], Awaitable[object]]) -> object:
        """Run one call on a new aiokafka admin client."""

        async def run() -> object:
            client = aiokafka.admin.AIOKafkaAdminClient(bootstrap_servers=self.bootstrap)
            await client.start()
            try:
                return await call(client)
            finally:
                await client.close()

        return asyncio.run(run())


Call = Callable[[Subject], object]
CALLS: dict[str, Call] = {}


def call(name: str) -> Callable[[Call], Call]:
    """Register a call under a name that describes the request."""

    def register(function: Call) -> Call:
        assert name not in CALLS, name
        CALLS[name] = function
        return function

    return register


def run_all(bootstrap: str) -> dict[str, object]:
    """Make every call in order, each after the effects of the previous one. Return the outcomes by name."""
    subject, outcomes = Subject(bootstrap), dict[str, object]()
    for name, function in CALLS.items():
        outcomes[name] = outcome(function, subject)
        subject.settle()
    return outcomes


def outcome(function: Call, subject: Subject) -> object:
    """Return a call's result or its error, masked and as a JSON value."""
    try:
        result: object = plain(function(subject))
    except KafkaException as error:
        result = {"error": error.args[0].name()}
    except (aiokafka.errors.KafkaError, kafka.errors.KafkaError) as error:
        result = {"error": type(error).__name__}
    return settled(json.loads(mask(json.dumps(result))))


def mask(text: str) -> str:
    """Replace values that differ between any two clusters."""
    text = re.sub(r"127\.0\.0\.1:\d+", "HOST:PORT", text)
    text = re.sub(r'("port": )\d+', r'\1"PORT"', text)
    text = re.sub(r'"/[^"]*?/data"', '"LOGDIR"', text)
    text = re.sub(r'("topic_id": )"[0-9a-f-]{36}"', r'\1"ID"', text)
    text = re.sub(r"(\[Error \d+\] \w+:)[^\"]*", r"\1 TEXT", text)
    return re.sub(r'("(?:cluster_id|topic_id|id)": )"[A-Za-z0-9_-]{22}"', r'\1"ID"', text)


def settled(value: object) -> object:
    """Return the value with sorted lists (Kafka shuffles some) and messages reduced to their presence."""
    if isinstance(value, list):
        return sorted((settled(each) for each in value), key=lambda each: json.dumps(each, sort_keys=True))
    if isinstance(value, dict):
        return {key: "TEXT" if each and key in PROSE else settled(each) for key, each in value.items()}
    return value


def plain(value: object) -> object:
    """Return a library's objects as lists, dicts, numbers and strings, in a stable order."""
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, str | int | float | bool | None):
        return value
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, dict):
        return {str(plain_key(key)): plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple | Iterator):
        return [plain(each) for each in value]
    if isinstance(value, set | frozenset):
        return sorted((plain(each) for each in value), key=str)
    if hasattr(value, "to_object"):
        return plain(value.to_object())
    attributes = vars(value) if hasattr(value, "__dict__") else {}
    return {key: plain(each) for key, each in sorted(attributes.items()) if not key.startswith("_")}


def plain_key(key: object) -> object:
    """Return a dict's key as text without addresses."""
    if isinstance(key, TopicPartition):
        return f"{key.topic}-{key.partition}"
    if isinstance(key, tuple):
        return "-".join(str(part) for part in key)
    return plain(key) if isinstance(key, str | int) else str(key)


def each_of(futures: dict[Any, Any], describe: Callable[[Any], object] = plain) -> dict[str, object]:
    """Return the result or error of each confluent-kafka future by key, so that partial failures stay visible."""
    results: dict[str, object] = {}
    for key, future in futures.items():
        name = getattr(key, "name", None) or plain_key(key)
        try:
            results[str(name)] = describe(future.result(TIMEOUT_S))
        except KafkaException as error:
            results[str(name)] = {"error": error.args[0].name()}
    return results
