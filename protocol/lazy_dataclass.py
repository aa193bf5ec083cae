"""`@lazy_dataclass(slots=True)`: a dataclass whose methods are generated on first use.

`dataclass` compiles three to six methods at import: 0.4 ms and 10 KB per class. A node imports 600 classes of messages,
whose decoders fill instances attribute by attribute and need none of those methods, and 300 other dataclasses, of which
a start constructs 130. This decorator only gives the class its slots. The first use of a method completes the class
with the methods that `dataclasses` generates for a second class with the same fields. Type checkers see a dataclass.

Compiled modules use `dataclass`: mypyc turns its classes into native ones, and knows no other decorator.
"""

import dataclasses
import functools
from typing import TYPE_CHECKING, Any, ClassVar, Final

__all__ = ["lazy_dataclass"]

_BEGUN: Final = "_lazy_dataclass"
"""Class attribute: arguments of `dataclass`, defaults of fields, other names in the class; None once it is complete."""
_INHERITED: Final = ("__init__", "__repr__", "__eq__", "__hash__", "__dataclass_fields__", "__dataclass_params__")
"""Attributes that an incomplete class has from `_Incomplete`."""


def _complete(cls: type) -> type:
    """Turn the lazy dataclasses among `cls` and its bases into dataclasses; return the first of them.

    Several threads may do so at once: each gives the class equal methods.
    """
    lazy = [each for each in cls.__mro__ if _BEGUN in each.__dict__]
    for each in reversed(lazy):
        begun = each.__dict__[_BEGUN]
        if begun is not None:
            _take_methods(each, *begun)
            setattr(each, _BEGUN, None)
    return lazy[0]


def _take_methods(cls: type, arguments: dict[str, bool], defaults: dict[str, object], own: tuple[str, ...]) -> None:
    """Give `cls` the methods of a dataclass with the same namespace."""
    namespace = {name: cls.__dict__[name] for name in own} | defaults | {"__qualname__": cls.__qualname__}
    twin: type = dataclasses.dataclass(**arguments)(type(cls.__name__, cls.__bases__[1:], namespace))
    for name in _INHERITED:
        setattr(cls, name, getattr(twin, name))
    for name, value in twin.__dict__.items():
        if name not in cls.__dict__:
            setattr(cls, name, value)


class _Fields:
    """`__dataclass_fields__` until its first use."""

    def __get__(self, instance: object, owner: type) -> object:
        if owner in (_Incomplete, _IncompleteFrozen):
            raise AttributeError("__dataclass_fields__")
        return _complete(owner).__dict__["__dataclass_fields__"]


class _Incomplete:
    """The methods of an incomplete class; the first call of any of them completes the class."""

    __slots__ = ()
    __dataclass_fields__ = _Fields()

    def __init__(self, *args: object, **kwargs: object) -> None:
        complete: Any = _complete(type(self))
        complete.__init__(self, *args, **kwargs)

    def __eq__(self, other: object) -> bool:
        _complete(type(self))
        return bool(self == other)

    def __hash__(self) -> int:
        _complete(type(self))
        return hash(self)

    def __repr__(self) -> str:
        _complete(type(self))
        return repr(self)


class _IncompleteFrozen(_Incomplete):
    """Instances may come from pickles of another process, before anything else uses the class."""

    __slots__ = ()

    def __setstate__(self, state: object) -> None:
        complete: Any = _complete(type(self))
        complete.__setstate__(self, state)


def _is_field(annotation: object) -> bool:
    return getattr(annotation, "__origin__", None) is not ClassVar


def _slotted(cls: type, arguments: dict[str, bool]) -> type:
    """Return an incomplete class with the slots of `cls`, which has no bases but Generic."""
    namespace = dict(cls.__dict__)
    del namespace["__dict__"], namespace["__weakref__"]
    names = tuple(name for name, annotation in cls.__annotations__.items() if _is_field(annotation))
    defaults = {name: namespace.pop(name) for name in names if name in namespace}
    namespace[_BEGUN] = (arguments, defaults, tuple(namespace))
    namespace["__slots__"] = (*names, "__weakref__") if arguments.get("weakref_slot") else names
    namespace["__qualname__"] = cls.__qualname__
    bases = (base for base in cls.__bases__ if base is not object)
    incomplete = _IncompleteFrozen if arguments.get("frozen") else _Incomplete
    return type(cls.__name__, (incomplete, *bases), namespace)


if TYPE_CHECKING:
    from dataclasses import dataclass as lazy_dataclass
else:

    @functools.cache
    def lazy_dataclass(*, slots: bool, **arguments: bool) -> Any:
        """Decorate like `dataclasses.dataclass`, with slots, a class without bases other than Generic."""
        assert slots, "a lazy dataclass requires slots=True"
        return lambda cls: _slotted(cls, {"slots": True, **arguments})
