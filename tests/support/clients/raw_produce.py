"""Produce requests without a client library, which would retry or hide errors."""

import socket
import struct

from protocol.headers import decode_response, encode_request
from protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData

VERSION = 9


class RawProducer:
    """One connection to one broker, with one request at a time."""

    def __init__(self, port: int) -> None:
        self._peer = socket.create_connection(("127.0.0.1", port), timeout=60)

    def produce(self, topic: str, index: int, records: bytes) -> tuple[int, int]:
        """Produce one batch; return error code and base offset. Raises OSError if the broker is unreachable."""
        request = ProduceRequest(
            acks=-1,
            timeout_ms=5000,
            topic_data=[TopicProduceData(name=topic, partition_data=[PartitionProduceData(index, records)])],
        )
        self._peer.sendall(b"".join(encode_request(request, VERSION, 1, "raw")))
        (size,) = struct.unpack(">i", self._read(4))
        response = decode_response(ProduceResponse, VERSION, self._read(size))[1]
        assert isinstance(response, ProduceResponse)
        answer = response.responses[0].partition_responses[0]
        return answer.error_code, answer.base_offset

    def close(self) -> None:
        self._peer.close()

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            piece = self._peer.recv(size - len(data))
            if not piece:
                raise ConnectionResetError("the broker closed the connection")
            data += piece
        return data
