"""History of kraft.version and voters (`broker.quorum.control_history`), compared with a replay of plain lists."""

import random

import pytest

from broker.quorum.control_history import Control, ControlHistory, IncompatibleVoters
from broker.quorum.identity import SocketAddress
from broker.quorum.membership.voters import VoterSet
from broker.quorum.settings import ControlRecord
from protocol.ids import BrokerId, Offset
from tests.broker.quorum.membership.test_voters import voter, voters
from tests.support.quorum_values import make_control_record, make_static_voter

STATIC = VoterSet.of_static([make_static_voter(1, SocketAddress("a", 1))], "CONTROLLER")


def version(offset: int, number: int) -> ControlRecord:
    return make_control_record(offset, number, None)


def voting(offset: int, *ids: int) -> ControlRecord:
    return make_control_record(offset, None, voters(*ids).to_record())


def test_configured_voters_apply_without_records() -> None:
    assert ControlHistory(STATIC).latest == Control(0, STATIC, None)
    assert ControlHistory(VoterSet()).latest == Control(0, VoterSet(), None)


def test_record_overrides_configured_voters() -> None:
    history = ControlHistory(STATIC, [version(4, 1), voting(5, 2, 3, 4)])
    assert history.latest == Control(1, voters(2, 3, 4), Offset(5))
    assert history.at(Offset(4)) == Control(1, STATIC, None)
    assert history.at(Offset(3)) == Control(0, STATIC, None)


def test_truncation_undoes_voter_changes() -> None:
    history = ControlHistory(STATIC, [version(-1, 1), voting(-1, 1, 2), voting(7, 1, 2), voting(9, 1, 2, 3)])
    history.truncate_to(Offset(9))
    assert history.latest == Control(1, voters(1, 2), Offset(7))
    history.truncate_to(Offset(0))
    assert history.latest == Control(1, voters(1, 2), Offset(-1))


def test_trim_keeps_the_values_in_force_at_the_new_start() -> None:
    history = ControlHistory(STATIC, [version(-1, 1), voting(3, 1), voting(8, 1, 2), voting(20, 1, 2, 3)])
    history.trim(Offset(10))
    assert history.at(Offset(9)) == Control(1, voters(1, 2), Offset(8))
    assert history.latest.voters == voters(1, 2, 3)
    assert history.at(Offset(7)).voters_offset is None, "values before the record in force at the new start are dropped"


def test_record_that_changes_two_voters_is_incompatible() -> None:
    history = ControlHistory(STATIC, [voting(0, 1, 2, 3)])
    with pytest.raises(IncompatibleVoters, match="at offset 5"):
        history.append(voting(5, 1, 2, 4))
    assert history.latest.voters == voters(1, 2, 3), "nothing changed"


def test_record_with_a_duplicate_id_is_incompatible() -> None:
    record = voters(1).to_record()
    record.voters *= 2
    with pytest.raises(IncompatibleVoters, match="share an id"):
        ControlHistory(STATIC, [make_control_record(0, None, record)])


def test_any_voters_may_follow_the_bootstrap_voters() -> None:
    assert ControlHistory(STATIC, [voting(-1, 1), voting(0, 4, 5, 6)]).latest.voters == voters(4, 5, 6)


def test_restart_from_a_snapshot_replaces_the_history() -> None:
    history = ControlHistory(STATIC, [version(-1, 1), voting(3, 1)])
    history.restart([voting(99, 4, 5, 6)])
    assert history.latest == Control(0, voters(4, 5, 6), Offset(99))
    history.restart([])
    assert history.latest == Control(0, STATIC, None)


def test_failed_restart_leaves_the_history_unchanged() -> None:
    history = ControlHistory(STATIC, [voting(3, 1)])
    with pytest.raises(IncompatibleVoters):
        history.restart([voting(9, 1), voting(10, 4, 5)])
    assert history.latest.voters == voters(1)


@pytest.mark.parametrize("seed", range(200))
def test_history_equals_a_replay(seed: int) -> None:
    rng = random.Random(seed)
    records: list[ControlRecord] = []
    history, start, end = ControlHistory(STATIC), 0, 0
    for _ in range(30):
        match rng.randrange(6):
            case 0:
                end = rng.randint(start, end)
                records = [record for record in records if record.offset < end]
                history.truncate_to(Offset(end))
            case 1:
                start = rng.randint(start, end)
                history.trim(Offset(start))
            case _:
                end += rng.randint(1, 3)
                record = _random_record(rng, end - 1, _replay(records, end).voters)
                records.append(record)
                history.append(record)
        queried = rng.randint(start - 1, end)
        assert history.at(Offset(queried)) == _replay(records, queried)
        assert history.latest == _replay(records, end)


def _random_record(rng: random.Random, offset: int, before: VoterSet) -> ControlRecord:
    if rng.random() < 0.3:
        return version(offset, rng.randint(0, 1))
    some = rng.randrange(5)
    if before is STATIC:
        return voting(offset, some)
    chosen = before.get(BrokerId(some))
    after = before.with_voter(voter(some)) if chosen is None else before.without(chosen.key)
    return make_control_record(offset, None, after.to_record())


def _replay(records: list[ControlRecord], offset: int) -> Control:
    control = Control(0, STATIC, None)
    for record in records:
        if record.offset <= offset and record.voters is not None:
            control = control._replace(voters=VoterSet.of_record(record.voters), voters_offset=record.offset)
        if record.offset <= offset and record.kraft_version is not None:
            control = control._replace(kraft_version=record.kraft_version)
    return control
