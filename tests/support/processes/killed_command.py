"""An `ottla` command that is killed right before one of its effects.

Usage: `python -m tests.support.processes.killed_command EFFECT COUNT ARGUMENTS...`.

Effects of `remote recover` are `validate`, `publish`, `log-start`, `restore` and `look-up`; COUNT of them happen
before. Events go out in small batches, so that a kill falls between them. The exit code is `KILLED` after a kill,
otherwise that of the command.
"""

import os
import sys
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from broker.cli.main import run
from broker.cli.tiering import topic_recovery
from broker.cli.tiering.metadata_topic import RemoteMetadataTopic
from broker.cli.tiering.topic_recovery import TopicRecovery
from storage.tiered.bucket.recovery_plan import TopicPlan
from storage.tiered.format.epoch_stamped_objects import EpochStampedObject

KILLED = 9
SEGMENTS_PER_BATCH = 2

P = ParamSpec("P")
R = TypeVar("R")


class ProcessKiller:
    """Kills this process right before the effect of that name, after `count` of them."""

    def __init__(self, effect: str, count: int) -> None:
        self._effect = effect
        self._left = count

    def witness(self, effect: str) -> None:
        if effect != self._effect:
            return
        if not self._left:
            os._exit(KILLED)
        self._left -= 1

    def watched(self, effect: str, function: Callable[P, R]) -> Callable[P, R]:
        @wraps(function)
        def watch(*args: P.args, **kwargs: P.kwargs) -> R:
            self.witness(effect)
            return function(*args, **kwargs)

        return watch

    def watched_restore(
        self, function: Callable[[TopicRecovery, TopicPlan, bool], None]
    ) -> Callable[[TopicRecovery, TopicPlan, bool], None]:
        def watch(recovery: TopicRecovery, plan: TopicPlan, validate_only: bool = False) -> None:
            self.witness("validate" if validate_only else "restore")
            function(recovery, plan, validate_only)

        return watch


def main(effect: str, count: int, arguments: list[str]) -> int:
    killer = ProcessKiller(effect, count)
    topic_recovery.SEGMENTS_PER_BATCH = SEGMENTS_PER_BATCH
    restore = TopicRecovery._restore
    for owner, name, watched in (
        (RemoteMetadataTopic, "publish", killer.watched("publish", RemoteMetadataTopic.publish)),
        (EpochStampedObject, "write", killer.watched("log-start", EpochStampedObject.write)),
        (TopicRecovery, "_verify", killer.watched("look-up", TopicRecovery._verify)),
        (
            TopicRecovery,
            "_restore",
            killer.watched_restore(
                lambda recovery, plan, validate_only: restore(recovery, plan, validate_only=validate_only)
            ),
        ),
    ):
        setattr(owner, name, watched)
    return run(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]), sys.argv[3:]))
