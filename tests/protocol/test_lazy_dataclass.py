"""A lazy dataclass behaves like a dataclass, whatever is used first."""

import copy
import dataclasses
import pickle
import subprocess
import sys
import threading
import weakref
from dataclasses import field
from typing import Any, ClassVar, Generic, TypeVar

import pytest

from protocol.lazy_dataclass import lazy_dataclass

T = TypeVar("T")


@lazy_dataclass(frozen=True, slots=True)
class Segment:
    """A class that other processes can import."""

    start: int
    end: int = field(default=9, repr=False)

    def __post_init__(self) -> None:
        if self.end < self.start:
            raise ValueError(f"{self.end} is before {self.start}")


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


def test_frozen_class_refuses_changes_and_has_a_hash() -> None:
    segment = Segment(1)
    with pytest.raises(dataclasses.FrozenInstanceError):
        segment.start = 2  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError):
        del segment.start
    assert hash(segment) == hash(Segment(1))
    assert {segment: "a"}[Segment(1, 9)] == "a"
    assert repr(segment) == "Segment(start=1)"
    assert dataclasses.replace(segment, end=5) == Segment(1, 5)


def test_post_init_runs_at_the_first_construction_and_later_ones() -> None:
    @lazy_dataclass(frozen=True, slots=True)
    class Checked:
        number: int

        def __post_init__(self) -> None:
            if self.number < 0:
                raise ValueError("negative")

    for _ in range(2):
        with pytest.raises(ValueError, match="negative"):
            Checked(-1)
    assert Checked(1).number == 1


def test_missing_argument_is_named() -> None:
    @lazy_dataclass(slots=True, kw_only=True)
    class Range:
        first: int
        last: int

    with pytest.raises(TypeError, match=r"Range\.__init__\(\) missing 1 required keyword-only argument: 'last'"):
        Range(first=1)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="positional"):
        Range(1, 2)  # type: ignore[call-arg]


def test_class_without_equality_compares_by_identity() -> None:
    @lazy_dataclass(slots=True, eq=False)
    class Entry:
        number: int

    one, other = Entry(1), Entry(1)
    assert one == one
    assert one != other
    assert {one: 1}.get(other) is None


def test_methods_of_the_class_itself_are_kept() -> None:
    @lazy_dataclass(frozen=True, slots=True)
    class Named:
        name: str
        note: str = ""

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Named) and self.name == other.name

        def __hash__(self) -> int:
            return hash(self.name)

        def __repr__(self) -> str:
            return f"<{self.name}>"

    assert Named("a", "x") == Named("a", "y")
    assert (hash(Named("a")), repr(Named("a"))) == (hash("a"), "<a>")


def test_frozen_class_with_its_own_equality_gets_a_hash_of_its_fields() -> None:
    """`dataclass` replaces the hash that Python removes from a class with `__eq__`."""

    @lazy_dataclass(frozen=True, slots=True)
    class Tagged:
        name: str

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Tagged)

    assert hash(Tagged("a")) == hash(Tagged("a"))


def test_generic_class_keeps_its_parameters() -> None:
    @lazy_dataclass(frozen=True, slots=True)
    class Result(Generic[T]):
        value: T

    alias: Any = Result[int]
    assert alias.__args__ == (int,)
    assert Result(3).value == 3
    assert Result("x") == Result("x")


def test_subclass_of_a_lazy_dataclass_is_constructed_first() -> None:
    @lazy_dataclass(slots=True)
    class Base:
        number: int

    class Child(Base):
        def double(self) -> int:
            return 2 * self.number

    assert Child(4).double() == 4 * 2
    assert Base(4).number == 4

    @lazy_dataclass(slots=True)
    class Another:
        number: int

    @dataclasses.dataclass(slots=True)
    class Extended(Another):
        name: str = ""

    assert Extended(1, "a") == Extended(number=1, name="a")

    @dataclasses.dataclass(frozen=True, slots=True)
    class Named(Segment):
        name: str = ""

    assert Named(1, 2, "a") == Named(1, 2, name="a")


def test_weak_references_need_their_slot() -> None:
    @lazy_dataclass(slots=True, weakref_slot=True, eq=False)
    class Held:
        number: int

    held = Held(1)
    assert weakref.ref(held)() is held
    with pytest.raises(TypeError, match="weak reference"):
        weakref.ref(Segment(1))


def test_instances_are_copied_and_pickled() -> None:
    assert copy.copy(Segment(1, 4)) == copy.deepcopy(Segment(1, 4)) == pickle.loads(pickle.dumps(Segment(1, 4)))


def test_unpickling_is_the_first_use_in_another_process() -> None:
    code = "import pickle, sys; print(pickle.load(sys.stdin.buffer).end)"
    pickled = pickle.dumps(Segment(1, 4))
    done = subprocess.run([sys.executable, "-c", code], input=pickled, capture_output=True, check=False)
    assert done.stdout.strip() == b"4", done.stderr.decode()


def test_several_threads_may_use_a_class_first() -> None:
    for _ in range(20):
        cls, start = fresh(), threading.Barrier(4)
        made: list[Any] = []

        def construct(cls: Any = cls, start: threading.Barrier = start, made: list[Any] = made) -> None:
            start.wait()
            made.append(cls(5))

        threads = [threading.Thread(target=construct) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [each.x for each in made] == [5, 5, 5, 5]
        assert made[0] == made[3]
