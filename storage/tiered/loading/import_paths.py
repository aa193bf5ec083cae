"""From a setting that names somebody's implementation to what it names, and from that to one that works.

Kafka has a class loader of its own for each class path. Here its directories and archives come first wherever modules
are looked for, from then on.
"""

import importlib
import sys
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def imported(key: str, name: str, class_path: str | None, known: str) -> Callable[..., object]:
    """What `package.module:Name` or `package.module.Name` names. `class_path`: where it is looked for first, with
    colons in between; `known`: names that have a meaning of their own, for the sentence.

    Raises ValueError with one sentence that names the key.
    """
    module, separator, attribute = name.partition(":") if ":" in name else name.rpartition(".")
    if not (module and separator and attribute) or module.startswith("."):
        raise ValueError(f"{key} must be {known} or an import path such as module:Name, not {name!r}.")
    _look_first_in(class_path)
    try:
        factory = getattr(importlib.import_module(module), attribute)
    except Exception as error:
        raise ValueError(f"{key} names {name}, which cannot be imported: {error}.") from error
    if not callable(factory):
        raise ValueError(f"{key} names {name}, which makes nothing.")
    return factory  # type: ignore[no-any-return]  # of a module that nobody can know


def made(key: str, name: str, make: Callable[[], T]) -> T:
    """What an implementation's factory returns. Raises ValueError with one sentence, whatever the factory raised."""
    try:
        return make()
    except ValueError:
        raise
    except Exception as error:
        raise ValueError(f"{key} names {name}, which does not start: {error!r}.") from error


def _look_first_in(class_path: str | None) -> None:
    places = [place for place in (class_path or "").split(":") if place]
    sys.path[:0] = [place for place in places if place not in sys.path]
