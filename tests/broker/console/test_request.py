"""Parameters of the console's requests, and pages of lists."""

import pytest

from broker.console.request import PAGE_SIZE, PAGE_SIZE_MAX, ConsoleError, cut, paged
from tests.support.harnesses.console_harness import asked


def test_missing_parameter_is_named() -> None:
    with pytest.raises(ConsoleError, match='"name" is missing') as refused:
        asked().text("name")
    assert refused.value.status == 400


def test_long_text_is_refused() -> None:
    with pytest.raises(ConsoleError, match="longer than 1000"):
        asked(name="x" * 1_001).text("name")


@pytest.mark.parametrize("text", ["", "x", "-1", "1.5", "9" * 30, "11", "１０ten"])
def test_number_outside_its_range_is_refused(text: str) -> None:
    with pytest.raises(ConsoleError, match="must be a number from 0 to 10"):
        asked(n=text).number("n", high=10)


def test_number_has_a_default() -> None:
    assert asked().number("n", 7) == 7
    assert asked(n=10).number("n", 7, high=10) == 10


def test_choice_outside_the_choices_is_refused() -> None:
    assert asked().choice("d", ("a", "b"), "a") == "a"
    with pytest.raises(ConsoleError, match="one of a, b"):
        asked(d="c").choice("d", ("a", "b"), "a")


def test_page_is_bounded() -> None:
    assert asked().page() == (0, PAGE_SIZE, "", "name", False)
    page = asked(page=2, size=PAGE_SIZE_MAX, search="AbC", sort="-lag").page(("name", "lag"))
    assert page == (2, PAGE_SIZE_MAX, "abc", "lag", True)
    with pytest.raises(ConsoleError, match='"size" must be'):
        asked(size=PAGE_SIZE_MAX + 1).page()
    with pytest.raises(ConsoleError, match='cannot be sorted by "secret"'):
        asked(sort="secret").page()


def test_page_cuts_a_list() -> None:
    page = asked(page=1, size=2).page()
    assert list(cut([1, 2, 3, 4, 5], page)) == [3, 4]
    assert paged([{"a": 1}], page, 5) == {"total": 5, "page": 1, "size": 2, "items": [{"a": 1}], "missing": []}
