"""Cluster metadata as pure values: the record frames, the immutable image, its deltas, and the controller's decisions.

Everything here is a function of its arguments: no clock, no randomness, no files, no loop. Drivers in `broker.runtime`
append what the controller decided to the metadata log and bring back what was committed.
"""
