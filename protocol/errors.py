"""The errors of the protocol: codes in responses, and the exceptions of the codec.

``` Exception ├── KafkaError     a refused request: error code and text for the client ├── DecodeError    malformed
bytes: the peer is at fault, its connection closes └── EncodeError    a value that does not fit the message or version:
the program is at fault ```
"""

from protocol.codec_errors import DecodeError, EncodeError
from protocol.messages.error_codes import ErrorCode

__all__ = ["DecodeError", "EncodeError", "ErrorCode", "KafkaError"]


class KafkaError(Exception):
    """A refusal with an error code; `message` is sent to the client, by default the code's own sentence."""

    def __init__(self, code: ErrorCode, message: str | None = None) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = code.message if message is None else message

    def __str__(self) -> str:
        return f"{self.code.name}: {self.message}"
