"""Loading of compiled third-party code without the packages around it.

`import crc32c` scans the installed distributions for its own version (30 ms) and `import aiokafka` loads a whole client
(50 ms and its memory). A node needs one function of the former and two classes of the latter, so the extension modules
are loaded directly.
"""

import importlib
import importlib.machinery
import importlib.util
from typing import NamedTuple, Protocol, cast

from protocol.primitives import Buffer


class Checksum(Protocol):
    """CRC-32C (Castagnoli) of `data`, continued from `value`."""

    def __call__(self, data: Buffer, value: int = 0) -> int: ...


class CompiledRecord(Protocol):
    """One record of the compiled reader."""

    @property
    def offset(self) -> int: ...
    @property
    def timestamp(self) -> int: ...
    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def headers(self) -> list[tuple[str, bytes | None]]: ...


class CompiledReader(Protocol):
    """An iterator over the records of one uncompressed batch."""

    def __iter__(self) -> "CompiledReader": ...
    def __next__(self) -> CompiledRecord: ...


class CompiledBuilder(Protocol):
    """An encoder that appends records after a batch header."""

    def append(
        self,
        offset: int,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: list[tuple[str, bytes | None]],
    ) -> object: ...
    def build(self) -> bytearray: ...
    def size(self) -> int: ...


class ReaderClass(Protocol):
    def __call__(self, buffer: Buffer) -> CompiledReader: ...


class BuilderClass(Protocol):
    def __call__(
        self,
        magic: int,
        compression_type: int,
        is_transactional: int,
        producer_id: int,
        producer_epoch: int,
        base_sequence: int,
        batch_size: int,
    ) -> CompiledBuilder: ...


class RecordCode(NamedTuple):
    """The compiled classes of aiokafka, and the exception they raise for invalid bytes."""

    reader: ReaderClass
    builder: BuilderClass
    corrupt: type[Exception]


def package_directory(package: str) -> str:
    """Return the directory of an installed package without importing it. Raises ImportError."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise ImportError(f"{package} is not installed", name=package)
    return spec.submodule_search_locations[0]


def _load_crc32c() -> Checksum:
    spec = importlib.machinery.PathFinder.find_spec("_crc32c", [package_directory("crc32c")])
    if spec is None or spec.loader is None:
        raise ImportError("the compiled part of crc32c is missing", name="crc32c")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return cast(Checksum, module.crc32c)


def record_code() -> RecordCode:
    """Import aiokafka's compiled reader and builder on first use, on any thread."""
    from protocol.records import record_code as loaded

    return loaded.RECORD_CODE


crc32c: Checksum = _load_crc32c()
