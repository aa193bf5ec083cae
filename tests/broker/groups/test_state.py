"""The table of transitions."""

import pytest

from broker.groups.state import GroupState, IllegalGroupTransition, Transition, can_rebalance, next_state

LEGAL = {
    (GroupState.EMPTY, Transition.REBALANCE): GroupState.PREPARING_REBALANCE,
    (GroupState.STABLE, Transition.REBALANCE): GroupState.PREPARING_REBALANCE,
    (GroupState.COMPLETING_REBALANCE, Transition.REBALANCE): GroupState.PREPARING_REBALANCE,
    (GroupState.PREPARING_REBALANCE, Transition.MEMBERS_JOINED): GroupState.COMPLETING_REBALANCE,
    (GroupState.PREPARING_REBALANCE, Transition.NO_MEMBERS_LEFT): GroupState.EMPTY,
    (GroupState.COMPLETING_REBALANCE, Transition.ASSIGNED): GroupState.STABLE,
}


@pytest.mark.parametrize("state", GroupState)
@pytest.mark.parametrize("transition", Transition)
def test_transition_is_legal_if_kafka_allows_it(state: GroupState, transition: Transition) -> None:
    if transition is Transition.UNLOADED and state is not GroupState.DEAD:
        assert next_state(state, transition) is GroupState.DEAD
    elif (state, transition) in LEGAL:
        assert next_state(state, transition) is LEGAL[state, transition]
    else:
        with pytest.raises(IllegalGroupTransition):
            next_state(state, transition)


def test_rebalance_can_start_in_states_without_a_rebalance() -> None:
    able = {state for state in GroupState if can_rebalance(state)}
    assert able == {GroupState.EMPTY, GroupState.STABLE, GroupState.COMPLETING_REBALANCE}
