"""A short run of random clients; `make fuzz` takes a million steps."""

from tests.broker.sasl.fuzz_logins import NEXT, run


def test_random_clients_break_no_rule_and_reach_every_state() -> None:
    tally = run(6_000, 1)
    reached = {after for _, after in tally.transitions}
    assert {state.name for states in NEXT.values() for state in states} <= reached
    assert tally.logins > 50
    assert tally.served > 50
