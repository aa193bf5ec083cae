"""librdkafka and aiokafka: see test_clients.py for what they do and print."""

import asyncio
import os
import ssl
import sys
import time
from collections.abc import Mapping
from typing import Any

import aiokafka
import aiokafka.errors
import confluent_kafka
from confluent_kafka import KafkaError

TIMEOUT_S = 20


def env(name: str) -> str:
    return os.environ[f"SECURE_{name}"]


# -- librdkafka


def rdkafka_scram(password: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": env("SCRAM"),
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": env("USER"),
        "sasl.password": password,
        "ssl.ca.location": env("CA"),
        "log_level": 0,
    }


def rdkafka_certificate() -> dict[str, Any]:
    return {
        "bootstrap.servers": env("MTLS"),
        "security.protocol": "SSL",
        "ssl.ca.location": env("CA"),
        "ssl.certificate.location": env("CERT"),
        "ssl.key.location": env("KEY"),
        "log_level": 0,
    }


def rdkafka_produce(config: Mapping[str, Any], topic: str, value: str) -> str:
    """Return "wrote", or the reason of the refusal."""
    codes: list[int] = []
    delivered: list[KafkaError | None] = []
    producer = confluent_kafka.Producer({**config, "error_cb": lambda error: codes.append(error.code())})
    producer.produce(topic, value, on_delivery=lambda error, _: delivered.append(error))
    deadline = time.monotonic() + TIMEOUT_S
    while not delivered and KafkaError._AUTHENTICATION not in codes:
        assert time.monotonic() < deadline, f"no answer; errors {codes}"
        producer.poll(0.05)
    producer.purge()
    if not delivered:
        return "not authenticated"
    (error,) = delivered
    if error is None:
        return "wrote"
    assert error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED, error
    return "not authorized"


def rdkafka_reads(config: Mapping[str, Any], topic: str, value: str) -> bool:
    settings = {**config, "group.id": f"g-{value}", "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = confluent_kafka.Consumer(settings)
    consumer.subscribe([topic])
    deadline = time.monotonic() + TIMEOUT_S
    try:
        while time.monotonic() < deadline:
            message = consumer.poll(0.2)
            if message is not None and message.error() is None and message.value() == value.encode():
                consumer.commit(message, asynchronous=False)
                return True
    finally:
        consumer.close()
    return False


def librdkafka() -> None:
    allowed = rdkafka_scram(env("PASSWORD"))
    assert rdkafka_produce(allowed, "allowed", "librdkafka") == "wrote"
    assert rdkafka_reads(allowed, "allowed", "librdkafka")
    print("scram: wrote and read")
    print("forbidden topic:", rdkafka_produce(allowed, "forbidden", "refused"))
    print("wrong password:", rdkafka_produce(rdkafka_scram("wrong"), "allowed", "refused"))
    print("certificate:", rdkafka_produce(rdkafka_certificate(), "allowed", "librdkafka"))
    print("certificate, forbidden topic:", rdkafka_produce(rdkafka_certificate(), "forbidden", "refused"))


# -- aiokafka


def aio_scram(password: str) -> dict[str, Any]:
    return {
        "bootstrap_servers": env("SCRAM"),
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": env("USER"),
        "sasl_plain_password": password,
        "ssl_context": ssl.create_default_context(cafile=env("CA")),
    }


def aio_certificate() -> dict[str, Any]:
    context = ssl.create_default_context(cafile=env("CA"))
    context.load_cert_chain(env("CERT"), env("KEY"))
    return {"bootstrap_servers": env("MTLS"), "security_protocol": "SSL", "ssl_context": context}


async def aio_produce(config: Mapping[str, Any], topic: str, value: str) -> str:
    """Return "wrote", or the reason of the refusal."""
    producer = aiokafka.AIOKafkaProducer(**config, request_timeout_ms=10_000)
    try:
        await producer.start()
        await producer.send_and_wait(topic, value.encode())
    except aiokafka.errors.TopicAuthorizationFailedError:
        return "not authorized"
    except (aiokafka.errors.AuthenticationFailedError, aiokafka.errors.KafkaConnectionError):
        return "not authenticated"
    finally:
        await producer.stop()
    return "wrote"


async def aio_reads(config: Mapping[str, Any], topic: str, value: str) -> bool:
    consumer = aiokafka.AIOKafkaConsumer(topic, **config, group_id=f"g-{value}", auto_offset_reset="earliest")
    await consumer.start()
    try:
        async with asyncio.timeout(TIMEOUT_S):
            async for message in consumer:
                if message.value == value.encode():
                    await consumer.commit()
                    return True
    finally:
        await consumer.stop()
    return False


async def aiokafka_cases() -> None:
    allowed = aio_scram(env("PASSWORD"))
    assert await aio_produce(allowed, "allowed", "aiokafka") == "wrote"
    assert await aio_reads(allowed, "allowed", "aiokafka")
    print("scram: wrote and read")
    print("forbidden topic:", await aio_produce(allowed, "forbidden", "refused"))
    print("wrong password:", await aio_produce(aio_scram("wrong"), "allowed", "refused"))
    print("certificate:", await aio_produce(aio_certificate(), "allowed", "aiokafka"))
    print("certificate, forbidden topic:", await aio_produce(aio_certificate(), "forbidden", "refused"))


if __name__ == "__main__":
    if sys.argv[1] == "librdkafka":
        librdkafka()
    else:
        asyncio.run(aiokafka_cases())
