"""A lazy dataclass behaves like a dataclass, whatever is used first."""

import copy
import dataclasses
from dataclasses import field
from typing import Any, ClassVar

import pytest

from protocol.lazy_dataclass import lazy_dataclass


def fresh() -> Any:
    @lazy_dataclass(slots=True)
    class Point:
        """A place."""

        UNIT: ClassVar[str] = "m"
        x: int = 0
        y: int = 2
        names: list[str] = field(default_factory=list)

    return Point


def test_lazy_dataclass_is_constructed_by_position_and_name() -> None:
    point = fresh()(1, names=["a"])
    assert (point.x, point.y, point.names) == (1, 2, ["a"])
    with pytest.raises(TypeError, match="unexpected keyword argument 'z'"):
        fresh()(z=1)


def test_equality_and_repr_work_before_the_first_construction() -> None:
    cls = fresh()
    left, right = object.__new__(cls), object.__new__(cls)
    for point in (left, right):
        point.x, point.y, point.names = 1, 2, []
    assert left == right
    right.y = 3
    assert left != right
    assert left != "point"
    other = object.__new__(fresh())
    other.x, other.y, other.names = 1, 2, []
    assert repr(other).endswith("Point(x=1, y=2, names=[])")


def test_dataclass_functions_complete_a_lazy_dataclass() -> None:
    assert dataclasses.is_dataclass(fresh())
    assert [f.name for f in dataclasses.fields(fresh())] == ["x", "y", "names"]
    assert dataclasses.asdict(fresh()(y=5)) == {"x": 0, "y": 5, "names": []}
    assert dataclasses.replace(fresh()(y=5), x=9).y == 5
    assert copy.copy(fresh()(y=5)).y == 5
    assert fresh()(y=5) != copy.copy(fresh()(y=5))


def test_lazy_dataclass_has_slots_defaults_and_constants() -> None:
    cls = fresh()
    assert cls.__slots__ == ("x", "y", "names")
    assert (cls.UNIT, cls.__doc__) == ("m", "A place.")
    assert cls().names is not cls().names
    with pytest.raises(AttributeError):
        cls().z = 1
    with pytest.raises(TypeError, match="unhashable"):
        hash(cls())


def test_patterns_match_by_position_once_constructed() -> None:
    cls = fresh()
    match cls(7):
        case cls(x, _):
            assert x == 7
        case _:
            pytest.fail("no match")
