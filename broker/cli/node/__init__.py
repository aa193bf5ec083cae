"""Preparation and start of nodes: formatting, local clusters, containers."""
