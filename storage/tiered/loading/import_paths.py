"""Import of implementations that settings name by import path.

Kafka has a class loader for each class path. Here its directories and archives are put in front of the module search
path, permanently.
"""

import importlib
import sys
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def imported(key: str, name: str, class_path: str | None, known: str) -> Callable[..., object]:
    """Import `package.module:Name` or `package.module.Name`. `class_path`: locations to search first, separated by
    colons; `known`: other valid names, for the message.

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
        raise ValueError(f"{key} names {name}, which is not callable.")
    return factory  # type: ignore[no-any-return]  # the module is unknown to mypy


def made(key: str, name: str, make: Callable[[], T]) -> T:
    """Call an implementation's factory. Raises ValueError with one sentence, whatever the factory raised."""
    try:
        return make()
    except ValueError:
        raise
    except Exception as error:
        raise ValueError(f"{key} names {name}, which does not start: {error!r}.") from error


def _look_first_in(class_path: str | None) -> None:
    places = [place for place in (class_path or "").split(":") if place]
    sys.path[:0] = [place for place in places if place not in sys.path]
