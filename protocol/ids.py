"""Distinct types for integers that stand side by side in signatures, so that mypy refuses swapped arguments.

Values from messages are wrapped once, where they enter the code that uses these types. Topic ids are `Uuid`, topic
names `str`.

A leader epoch, broker id or broker epoch that stands beside an offset or another integer has its type, which alone
makes mypy refuse swapped arguments. Offsets are computed with everywhere, and `offset + 1` is an `int` again: they stay
`int` unless two numbers of different meaning could be swapped and no arithmetic is needed. A call of a type costs time:
paths of records and batches annotate fields and pass values on, and call no type.
"""

from typing import Final, NewType

BrokerId = NewType("BrokerId", int)
"""The id of a node (broker, controller, or replica of the metadata log), its `node.id`; -1 stands for no node."""

BrokerEpoch = NewType("BrokerEpoch", int)
"""The epoch of a broker's registration: the offset of its registration record; -1 before a broker is registered."""

Offset = NewType("Offset", int)
"""An offset of a log; -1 stands for no record."""

LeaderEpoch = NewType("LeaderEpoch", int)
"""The epoch of a partition's leader, or of the leader of the metadata quorum."""

EPOCH_ZERO: Final = LeaderEpoch(0)
"""The epoch of the metadata quorum before its first election, which has no leader."""
