"""Drivers of the controller and of this node's requests to it: registration, heartbeats, forwarding, configuration."""
