"""Coordinators on the brokers of the simulated cluster, their internal topics, and their clients."""
