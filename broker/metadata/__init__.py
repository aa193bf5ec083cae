"""Cluster metadata as pure values: record frames, the immutable image, its deltas, and the controller's decisions.

Everything is a function of its arguments, without clock, randomness, files or event loop. Drivers in `broker.runtime`
append the controller's records to the metadata log and feed back committed records.
"""
