"""The encoding of a snapshot from the state: executors encode each section into a file, and the driver concatenates
them.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from protocol.primitives import Buffer
from spark_jobs.metadata.log_rows import REGISTRY, TOPIC_SECTIONS
from spark_jobs.metadata.registry import Registry
from spark_jobs.metadata.snapshot_file import (
    EncodeContext,
    EncodedRegistry,
    EncodedSection,
    assemble,
    encode_registry,
    encode_section,
)
from spark_jobs.metadata.summary import control_from_bytes
from spark_jobs.metadata_snapshots.state_store import StateStore

ENCODED: Final = "encoded/"
_OPENING: Final = "opening"
_BEFORE: Final = "before"
_AFTER: Final = "after"


@dataclass(frozen=True, slots=True)
class Encoding:
    """The encoding of the state in `files` at `end`. Can be pickled. Raises the exceptions of the store."""

    store: StateStore
    files: Mapping[int, str]
    end: int
    context: EncodeContext
    control: bytes

    @property
    def _root(self) -> str:
        return self.store.branch + ENCODED

    @property
    def directory(self) -> str:
        return f"{self._root}{self.end:020d}-{self.context.epoch:010d}/"

    @property
    def sections(self) -> list[int]:
        """The sections to encode, always with the registry, which opens the snapshot."""
        return sorted({*self.files, REGISTRY})

    def encode(self, section: int) -> int:
        """Encode a section in an executor; return the section."""
        if section == REGISTRY:
            self._encode_registry()
        else:
            encoded = encode_section(section, self.store.read_section(self.files[section]), self.context)
            self.store.put(self._name(f"{section:02d}"), [encoded.batches])
        return section

    def _encode_registry(self) -> None:
        file = self.files.get(REGISTRY)
        registry = Registry() if file is None else Registry.from_bytes(self.store.read(file))
        encoded = encode_registry(registry, control_from_bytes(self.control), self.context)
        self.store.put(self._name(_OPENING), [encoded.opening])
        self.store.put(self._name(_BEFORE), [encoded.before.batches])
        self.store.put(self._name(_AFTER), [encoded.after.batches])

    def pieces(self) -> Iterator[Buffer]:
        """Yield the bytes of the snapshot in the driver after all sections are encoded, one section in memory at a
        time.
        """
        registry = EncodedRegistry(
            self.store.read(self._name(_OPENING)),
            EncodedSection.of(REGISTRY, self.store.read(self._name(_BEFORE))),
            EncodedSection.of(REGISTRY, self.store.read(self._name(_AFTER))),
            self.context.epoch,
            self.context.timestamp_ms,
        )
        return assemble(registry, self._encoded_sections())

    def _encoded_sections(self) -> Iterator[EncodedSection]:
        for section in range(TOPIC_SECTIONS):
            if section in self.files:
                yield EncodedSection.of(section, self.store.read(self._name(f"{section:02d}")))

    def remove(self) -> None:
        """Remove the encoded sections, also those of a failed attempt."""
        self.store.delete([found.key for found in self.store.listed(self._root)])

    def _name(self, part: str) -> str:
        return self.directory + part
