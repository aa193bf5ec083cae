"""Recorder of the exchanges between real clients and Apache Kafka: `python -m tests.wire.capture` rewrites
`clients.txt`.

Clients connect to Apache Kafka through a proxy on the address that Kafka advertises. The first request of every client,
API and version is kept with its response: "client api version request-hex response-hex", without size prefixes. Needs
Java and Kafka's jars; the tests that use the file need neither.
"""

import asyncio
import contextlib
import socket
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import SimpleQueue

import aiokafka
import confluent_kafka
import confluent_kafka.admin
import kafka
import kafka.admin

from protocol.headers import decode_request_header
from tests.support.fakes.frame_reader import FrameReader
from tests.support.kafka.apache_kafka import apache_kafka, free_ports, java_command

CLIENTS = Path(__file__).parent / "clients.txt"
LONGEST_FRAME = 4000
"""Larger frames are left out, to keep the file readable."""

Exchanges = dict[tuple[str, int, int], tuple[bytes, bytes]]


class Recorder:
    """A proxy that keeps the first exchange of each client, API and version."""

    def __init__(self, port: int, upstream: tuple[str, int]) -> None:
        self.client = ""
        self.exchanges: Exchanges = {}
        self._upstream = upstream
        self._server = socket.create_server(("127.0.0.1", port))
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            client, _ = self._server.accept()
            server = socket.create_connection(self._upstream)
            asked: SimpleQueue[tuple[str, bytes]] = SimpleQueue()
            for pump in (self._requests, self._responses):
                threading.Thread(target=pump, args=(client, server, asked), daemon=True).start()

    def _requests(self, client: socket.socket, server: socket.socket, asked: SimpleQueue[tuple[str, bytes]]) -> None:
        for frame in _relay(client, server):
            asked.put((self.client, frame))

    def _responses(self, client: socket.socket, server: socket.socket, asked: SimpleQueue[tuple[str, bytes]]) -> None:
        for frame in _relay(server, client):
            name, request = asked.get()
            header, _ = decode_request_header(request)
            key = (name, header.api_key, header.api_version)
            if len(request) + len(frame) <= LONGEST_FRAME:
                self.exchanges.setdefault(key, (request, frame))


def _relay(source: socket.socket, target: socket.socket) -> Iterator[bytes]:
    """Forward bytes, and yield each frame before its last bytes are sent."""
    reader = FrameReader()
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            yield from (bytes(frame) for frame in reader.feed(data))
            target.sendall(data)
    for end in (source, target):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


def librdkafka(bootstrap: str) -> None:
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": bootstrap})
    created = admin.create_topics([confluent_kafka.admin.NewTopic("rd", 2, 1)])
    created["rd"].result(30)
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    producer.produce("rd", b"value", b"key")
    producer.flush(30)
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "rd-group", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["rd"])
    while consumer.poll(1.0) is None:
        continue
    consumer.commit(asynchronous=False)
    consumer.close()
    resource = confluent_kafka.admin.ConfigResource(confluent_kafka.admin.ResourceType.TOPIC, "rd")
    admin.describe_configs([resource])[resource].result(30)
    admin.list_consumer_groups().result(30)
    admin.describe_consumer_groups(["rd-group"])["rd-group"].result(30)
    admin.delete_topics(["rd"])["rd"].result(30)


def kafka_python(bootstrap: str) -> None:
    admin = kafka.KafkaAdminClient(bootstrap_servers=bootstrap)
    admin.create_topics([kafka.admin.NewTopic("py", 1, 1)])
    producer = kafka.KafkaProducer(bootstrap_servers=bootstrap, acks="all")
    producer.send("py", b"value").get(30)
    producer.close()
    consumer = kafka.KafkaConsumer(
        "py", bootstrap_servers=bootstrap, group_id="py-group", auto_offset_reset="earliest", consumer_timeout_ms=20_000
    )
    next(iter(consumer))
    consumer.commit()
    consumer.close()
    admin.delete_topics(["py"])
    admin.close()


def aiokafka_client(bootstrap: str) -> None:
    async def run() -> None:
        producer = aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap)
        await producer.start()
        await producer.send_and_wait("aio", b"value")
        await producer.stop()
        consumer = aiokafka.AIOKafkaConsumer(
            "aio", bootstrap_servers=bootstrap, group_id="aio-group", auto_offset_reset="earliest"
        )
        await consumer.start()
        await consumer.getone()
        await consumer.commit()
        await consumer.stop()

    asyncio.run(run())


def java(bootstrap: str) -> None:
    tools: tuple[tuple[str, ...], ...] = (
        ("TopicCommand", "--create", "--topic", "java", "--partitions", "2"),
        ("ConsoleProducer", "--topic", "java"),
        ("consumer.ConsoleConsumer", "--topic", "java", "--from-beginning", "--max-messages", "1", "--group", "j"),
        ("TopicCommand", "--describe", "--topic", "java"),
        ("GetOffsetShell", "--topic", "java"),
        ("consumer.group.ConsumerGroupCommand", "--describe", "--group", "j"),
        ("TopicCommand", "--delete", "--topic", "java"),
    )
    for tool, *arguments in tools:
        command = java_command(f"org.apache.kafka.tools.{tool}", "--bootstrap-server", bootstrap, *arguments)
        subprocess.run(command, input=b"value\n", capture_output=True, check=True, timeout=60)


PROGRAMS: dict[str, Callable[[str], None]] = {
    "librdkafka": librdkafka,
    "kafka-python": kafka_python,
    "aiokafka": aiokafka_client,
    "java": java,
}


def main() -> None:
    (port,) = free_ports(1)
    settings = {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}", "group.initial.rebalance.delay.ms": "0"}
    with tempfile.TemporaryDirectory() as directory, apache_kafka(Path(directory), settings) as upstream:
        host, _, upstream_port = upstream.rpartition(":")
        recorder = Recorder(port, (host, int(upstream_port)))
        for name, program in PROGRAMS.items():
            recorder.client = name
            program(f"127.0.0.1:{port}")
    lines = [f"{c} {key} {version} {q.hex()} {r.hex()}\n" for (c, key, version), (q, r) in recorder.exchanges.items()]
    CLIENTS.write_text("".join(sorted(lines)))


if __name__ == "__main__":
    main()
