"""The attributes of a producer's entry, for comparisons; extension types have no `__slots__` to list them."""

from storage.producer_state import ProducerEntry


def attributes_of(entry: ProducerEntry) -> dict[str, object]:
    """Return all public attributes by name, without methods."""
    named = {name: getattr(entry, name) for name in dir(entry) if not name.startswith("_")}
    return {name: value for name, value in named.items() if not callable(value)}
