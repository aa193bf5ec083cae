"""Distinct types for integers that stand side by side in signatures, so that mypy refuses swapped arguments.

Values from messages are wrapped once, where they enter the code that uses these types. Topic ids are `Uuid`, topic
names `str`.
"""

from typing import NewType

BrokerId = NewType("BrokerId", int)
"""The id of a broker, `node.id` of its configuration; -1 stands for no broker."""

BrokerEpoch = NewType("BrokerEpoch", int)
"""The epoch of a broker's registration: the offset of its registration record; -1 before a broker is registered."""

Offset = NewType("Offset", int)
"""An offset of a log; -1 stands for no record."""

LeaderEpoch = NewType("LeaderEpoch", int)
"""The epoch of a partition's leader, or of the leader of the metadata quorum."""
