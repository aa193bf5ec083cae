"""Every anomaly is counted, and a run without anomalies has none."""

from collections.abc import Callable

import pytest

from tests.exactly_once.checker import Anomalies, Ledger, Read


def ledger() -> Ledger:
    """Return a ledger of three inputs: two in one transaction, one in another, and an aborted attempt between them."""
    found = Ledger(3)
    for line in ("commit a.1.1 100 2", "committed a.1.1", "aborted a.1.2", "commit b.1.1 200 1", "committed b.1.1"):
        found.hear(line)
    found.see(0, 0, Read(0, "a.1.1", 150))
    found.see(1, 0, Read(1, "a.1.1", 151))
    found.see(0, 5, Read(2, "b.1.1", 250))
    return found


def lose(found: Ledger) -> None:
    found.expected = 4


def duplicate(found: Ledger) -> None:
    found.hear("commit c.1.1 300 1")
    found.see(1, 9, Read(2, "c.1.1", 350))


def read_aborted(found: Ledger) -> None:
    found.reads[0, 5] = Read(2, "a.1.2", 250)
    del found.commits["b.1.1"]


def read_early(found: Ledger) -> None:
    found.reads[0, 5] = Read(2, "b.1.1", 199)


def read_uncommitted(found: Ledger) -> None:
    found.reads[0, 5] = Read(2, "d.1.1", 250)
    del found.commits["b.1.1"]


def tear(found: Ledger) -> None:
    found.commits["a.1.1"] = (100, 3)


def hide(found: Ledger) -> None:
    found.hear("commit c.1.1 300 1")
    found.hear("committed c.1.1")


def invent(found: Ledger) -> None:
    found.hear("commit c.1.1 300 1")
    found.see(1, 9, Read(77, "c.1.1", 350))


@pytest.mark.parametrize(
    ("damage", "expected"),
    [
        (lambda _found: None, Anomalies()),
        (lose, Anomalies(lost=1)),
        (duplicate, Anomalies(duplicates=1)),
        (read_aborted, Anomalies(aborted_reads=1)),
        (read_early, Anomalies(precommitted_reads=1)),
        (read_uncommitted, Anomalies(precommitted_reads=1)),
        (tear, Anomalies(torn=1)),
        (hide, Anomalies(torn=1)),
        (invent, Anomalies(foreign=1)),
    ],
)
def test_anomaly_is_counted(damage: Callable[[Ledger], None], expected: Anomalies) -> None:
    found = ledger()
    damage(found)
    assert found.verdict(dict(found.reads)) == expected


def test_unknown_outcome_may_be_either() -> None:
    found = ledger()
    found.hear("commit c.1.1 300 1")
    assert found.verdict(dict(found.reads)).total == 0


def test_later_reading_must_agree() -> None:
    found = ledger()
    again = {place: read._replace(time_ms=999) for place, read in found.reads.items()}
    assert found.verdict(again).changed == 0
    again[1, 0] = Read(7, "a.1.1", 999)
    del again[0, 0]
    assert found.verdict(again).changed == 2


def test_invalid_report_is_refused() -> None:
    with pytest.raises(ValueError, match="Traceback"):
        ledger().hear("Traceback (most recent call last):")
