"""The given settings of a node by source."""

from collections.abc import Mapping

from protocol.lazy_dataclass import lazy_dataclass


@lazy_dataclass(frozen=True, slots=True)
class Layers:
    """The given settings, as text by key and source, strongest source first. Defaults are in the tables."""

    broker: Mapping[str, str]
    cluster: Mapping[str, str]
    static: Mapping[str, str]

    def find(self, name: str) -> str | None:
        for layer in (self.broker, self.cluster, self.static):
            found = layer.get(name)
            if found is not None:
                return found
        return None
