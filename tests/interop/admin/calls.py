"""Admin calls of three client libraries, good and bad ones, and what came of each in a form that can be compared.

Every call is a named function that takes a `Subject` and returns plain data, or raises the library's error. `run_all`
makes all calls in order against one cluster; what differs by nature (ids, ports, times, paths, hosts) is masked.
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

from tests.interop.news import News

TIMEOUT_S = 30
PROSE = {"error_message", "documentation", "message", "description"}
"""Fields whose words are each implementation's own."""


@dataclass
class Subject:
    """The cluster under test, and one admin client of each library on it."""

    bootstrap: str
    librdkafka: ck.AdminClient = field(init=False)
    kafka_python: Any = field(init=False)
    _news: News = field(init=False)

    def __post_init__(self) -> None:
        self.librdkafka = ck.AdminClient({"bootstrap.servers": self.bootstrap})
        self.kafka_python = kafka.admin.KafkaAdminClient(bootstrap_servers=self.bootstrap)
        self._news = News(self.bootstrap)

    def settle(self) -> None:
        """Wait until the broker has heard of all that its controller has decided: Apache Kafka answers before."""
        self._news.catch_up()

    def aiokafka(self, call: Callable[[Any], Awaitable[object]]) -> object:
        """Run one call on an aiokafka admin client of its own."""

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
    """Register a call under a name that says what is asked and what is odd about it."""

    def register(function: Call) -> Call:
        assert name not in CALLS, name
        CALLS[name] = function
        return function

    return register


def run_all(bootstrap: str) -> dict[str, object]:
    """Make every call in order, each when what came of the one before is known; the outcomes by name."""
    subject, outcomes = Subject(bootstrap), dict[str, object]()
    for name, function in CALLS.items():
        outcomes[name] = outcome(function, subject)
        subject.settle()
    return outcomes


def outcome(function: Call, subject: Subject) -> object:
    """What a call returned, or the error it ended in, masked and as JSON would hold it."""
    try:
        result: object = plain(function(subject))
    except KafkaException as error:
        result = {"error": error.args[0].name()}
    except (aiokafka.errors.KafkaError, kafka.errors.KafkaError) as error:
        result = {"error": type(error).__name__}
    return settled(json.loads(mask(json.dumps(result))))


def mask(text: str) -> str:
    """Replace what differs between any two clusters."""
    text = re.sub(r"127\.0\.0\.1:\d+", "HOST:PORT", text)
    text = re.sub(r'("port": )\d+', r'\1"PORT"', text)
    text = re.sub(r'"/[^"]*?/data"', '"LOGDIR"', text)
    text = re.sub(r'("topic_id": )"[0-9a-f-]{36}"', r'\1"ID"', text)
    text = re.sub(r"(\[Error \d+\] \w+:)[^\"]*", r"\1 TEXT", text)
    return re.sub(r'("(?:cluster_id|topic_id|id)": )"[A-Za-z0-9_-]{22}"', r'\1"ID"', text)


def settled(value: object) -> object:
    """The value with lists in one order (Kafka shuffles some on purpose) and sentences reduced to their presence."""
    if isinstance(value, list):
        return sorted((settled(each) for each in value), key=lambda each: json.dumps(each, sort_keys=True))
    if isinstance(value, dict):
        return {key: "TEXT" if each and key in PROSE else settled(each) for key, each in value.items()}
    return value


def plain(value: object) -> object:
    """A library's objects as lists, dicts, numbers and strings, in a stable order."""
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
    """A dict's key as text that does not hold an address."""
    if isinstance(key, TopicPartition):
        return f"{key.topic}-{key.partition}"
    if isinstance(key, tuple):
        return "-".join(str(part) for part in key)
    return plain(key) if isinstance(key, str | int) else str(key)


def each_of(futures: dict[Any, Any], describe: Callable[[Any], object] = plain) -> dict[str, object]:
    """confluent-kafka's futures by key: each result or error, so that partial failures stay visible."""
    results: dict[str, object] = {}
    for key, future in futures.items():
        name = getattr(key, "name", None) or plain_key(key)
        try:
            results[str(name)] = describe(future.result(TIMEOUT_S))
        except KafkaException as error:
            results[str(name)] = {"error": error.args[0].name()}
    return results
