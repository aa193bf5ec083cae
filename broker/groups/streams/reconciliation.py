"""Reconciliation: the steps of one member from its current tasks to the target assignment (KIP-1071).

Each heartbeat may take one step. An active task goes to another member only after the former owner has named its tasks
without it. The state of a task is a directory of the process, so no process gets a task in a new role before it has
given up the task in the former one.

    assigned' = assigned ∩ target, for each role
    revoke    = assigned − assigned'
    add       = target − assigned' − tasks that are held

| role | a task is held when |
|---|---|
| active | a process has it as active, or the member's process has it as standby or warm-up |
| standby, warm-up | the member's process has it in any role |

| state | condition | step |
|---|---|---|
| STABLE | at the target epoch | none |
| STABLE, UNRELEASED | else | compute with the current epoch |
| UNREVOKED | owned tasks unknown, or one of `revoking` is still owned | none |
| UNREVOKED | else | compute with the current epoch + 1 |
| UNKNOWN (written by a later version) | the member owns tasks, or does not say | FENCED_MEMBER_EPOCH |
| UNKNOWN | else | compute with the target epoch |

| compute, first row that applies | next state | epoch | assigned | revoking |
|---|---|---|---|---|
| one of `revoke` is still owned (or owned tasks unknown) | UNREVOKED | as given | assigned' | revoke |
| a target task is held | UNRELEASED | target | assigned' + add | none |
| otherwise | STABLE | target | assigned' + add | none |
"""

from collections.abc import Callable
from typing import NamedTuple

from broker.groups.streams.member import StreamsMemberAssignment, TaskReconciliationState
from broker.groups.streams.tasks import ActiveTasks, AssignedTasks, Tasks, TaskSet, have_common_tasks
from protocol.errors import ErrorCode, KafkaError

IsHeld = Callable[[str, int], bool]
"""Whether the task cannot be given to the member yet."""


class HeldTasks(NamedTuple):
    """The tasks that are held, by the role in which the member would get them."""

    for_active: IsHeld
    for_copy: IsHeld


def next_tasks(
    current: StreamsMemberAssignment, target_epoch: int, target: Tasks, owned: Tasks | None, held: HeldTasks
) -> StreamsMemberAssignment:
    """Return the member's next assignment; the current one if there is no step.

    `owned` are the tasks that the client names as its own, None when it did not. Raise KafkaError FENCED_MEMBER_EPOCH
    for a member in an unknown state.
    """
    match current.state:
        case TaskReconciliationState.STABLE if current.epoch == target_epoch:
            return current
        case TaskReconciliationState.UNREVOKED_TASKS:
            if owned is None or have_common_tasks(owned, current.revoking.without_epochs()):
                return current
            epoch = current.epoch + 1
        case TaskReconciliationState.UNKNOWN:
            if owned is None or owned:
                raise KafkaError(
                    ErrorCode.FENCED_MEMBER_EPOCH,
                    "The streams group member is in a unknown state. The member must abandon all its tasks and rejoin.",
                )
            epoch = target_epoch
        case _:
            epoch = current.epoch
    return _compute(current, epoch, target_epoch, target, owned, held)


def _compute(
    current: StreamsMemberAssignment,
    epoch: int,
    target_epoch: int,
    target: Tasks,
    owned: Tasks | None,
    held: HeldTasks,
) -> StreamsMemberAssignment:
    former = current.assigned
    kept = AssignedTasks(
        _active_where(former.active, target.active, is_wanted=True),
        _common(former.standby, target.standby),
        _common(former.warmup, target.warmup),
    )
    revoke = AssignedTasks(
        _active_where(former.active, target.active, is_wanted=False),
        _difference(former.standby, target.standby),
        _difference(former.warmup, target.warmup),
    )
    if revoke and (owned is None or have_common_tasks(owned, revoke.without_epochs())):
        return StreamsMemberAssignment(epoch, current.epoch, TaskReconciliationState.UNREVOKED_TASKS, kept, revoke)
    has_unreleased = False

    def free(wanted: TaskSet, own: TaskSet | ActiveTasks, is_held: IsHeld) -> TaskSet:
        nonlocal has_unreleased
        missing = {name: partitions - frozenset(own.get(name, ())) for name, partitions in wanted.items()}
        found = {name: frozenset(p for p in partitions if not is_held(name, p)) for name, partitions in missing.items()}
        has_unreleased |= any(len(found[name]) < len(partitions) for name, partitions in missing.items())
        return {name: partitions for name, partitions in found.items() if partitions}

    new_active = free(target.active, kept.active, held.for_active)
    assigned = AssignedTasks(
        _with_epoch(kept.active, new_active, target_epoch),
        _union(kept.standby, free(target.standby, kept.standby, held.for_copy)),
        _union(kept.warmup, free(target.warmup, kept.warmup, held.for_copy)),
    )
    state = TaskReconciliationState.UNRELEASED_TASKS if has_unreleased else TaskReconciliationState.STABLE
    return StreamsMemberAssignment(target_epoch, current.epoch, state, assigned)


def _active_where(tasks: ActiveTasks, target: TaskSet, *, is_wanted: bool) -> ActiveTasks:
    """Return the tasks that are in the target, or those that are not, with their epochs."""
    found: dict[str, dict[int, int]] = {}
    for name, epochs in tasks.items():
        wanted = target.get(name, frozenset())
        chosen = {partition: epoch for partition, epoch in epochs.items() if (partition in wanted) == is_wanted}
        if chosen:
            found[name] = chosen
    return found


def _with_epoch(tasks: ActiveTasks, added: TaskSet, epoch: int) -> ActiveTasks:
    joined = {name: dict(epochs) for name, epochs in tasks.items()}
    for name, partitions in added.items():
        joined.setdefault(name, {}).update(dict.fromkeys(partitions, epoch))
    return joined


def _common(one: TaskSet, other: TaskSet) -> TaskSet:
    common = {name: partitions & other.get(name, frozenset()) for name, partitions in one.items()}
    return {name: partitions for name, partitions in common.items() if partitions}


def _difference(one: TaskSet, other: TaskSet) -> TaskSet:
    rest = {name: partitions - other.get(name, frozenset()) for name, partitions in one.items()}
    return {name: partitions for name, partitions in rest.items() if partitions}


def _union(one: TaskSet, other: TaskSet) -> TaskSet:
    joined = dict(one)
    for name, partitions in other.items():
        joined[name] = joined.get(name, frozenset()) | partitions
    return joined
