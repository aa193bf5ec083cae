"""The states of a classic group, and every transition between them.

Two rules: every transition is a row of the table below, and the table does not know members, timers or records.
An illegal transition is a missing row: a bug in the coordinator, which raises.

A group goes through generations. In each, members *join* (requests are parked until all members have joined, or until
a timeout), then *sync* (requests are parked until the leader's assignment is in the log):

    Empty ──REBALANCE──► PreparingRebalance ──MEMBERS_JOINED──► CompletingRebalance ──ASSIGNED──► Stable
      ▲                      │     ▲                                   │                            │
      └───NO_MEMBERS_LEFT────┘     └─────────────REBALANCE─────────────┴────────────────────────────┘

| state | JoinGroup | SyncGroup | Heartbeat | OffsetCommit by a member |
|---|---|---|---|---|
| Empty | starts a rebalance | UNKNOWN_MEMBER_ID | UNKNOWN_MEMBER_ID | without a generation only |
| PreparingRebalance | parked | REBALANCE_IN_PROGRESS | REBALANCE_IN_PROGRESS | accepted |
| CompletingRebalance | same generation, or a new rebalance | parked | accepted | REBALANCE_IN_PROGRESS |
| Stable | same generation, or a new rebalance | the assignment | accepted | accepted |
| Dead | COORDINATOR_NOT_AVAILABLE everywhere: the partition has moved | | | |
"""

from collections.abc import Mapping
from enum import Enum


class GroupState(Enum):
    """A state, named as clients see it in ListGroups and DescribeGroups."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class Transition(Enum):
    """The reason for a change of state."""

    REBALANCE = "members are asked to join again"
    MEMBERS_JOINED = "the join phase ended with members"
    NO_MEMBERS_LEFT = "the join phase ended without members"
    ASSIGNED = "the leader's assignment is committed"
    UNLOADED = "this node stopped coordinating the group"


_TRANSITIONS: Mapping[tuple[GroupState, Transition], GroupState] = {
    (GroupState.EMPTY, Transition.REBALANCE): GroupState.PREPARING_REBALANCE,
    (GroupState.STABLE, Transition.REBALANCE): GroupState.PREPARING_REBALANCE,
    (GroupState.COMPLETING_REBALANCE, Transition.REBALANCE): GroupState.PREPARING_REBALANCE,
    (GroupState.PREPARING_REBALANCE, Transition.MEMBERS_JOINED): GroupState.COMPLETING_REBALANCE,
    (GroupState.PREPARING_REBALANCE, Transition.NO_MEMBERS_LEFT): GroupState.EMPTY,
    (GroupState.COMPLETING_REBALANCE, Transition.ASSIGNED): GroupState.STABLE,
    (GroupState.EMPTY, Transition.UNLOADED): GroupState.DEAD,
    (GroupState.PREPARING_REBALANCE, Transition.UNLOADED): GroupState.DEAD,
    (GroupState.COMPLETING_REBALANCE, Transition.UNLOADED): GroupState.DEAD,
    (GroupState.STABLE, Transition.UNLOADED): GroupState.DEAD,
}


class IllegalGroupTransition(Exception):
    """A transition that no row allows: a bug in the coordinator."""


def can_rebalance(state: GroupState) -> bool:
    """Whether a rebalance may start: none is in progress, and the group is not dead."""
    return (state, Transition.REBALANCE) in _TRANSITIONS


def next_state(state: GroupState, transition: Transition) -> GroupState:
    """Return the state after the transition. Raise IllegalGroupTransition."""
    try:
        return _TRANSITIONS[state, transition]
    except KeyError:
        raise IllegalGroupTransition(f"{transition.name} in state {state.value}") from None
