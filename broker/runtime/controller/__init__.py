"""Drivers of the controller and of this node's relation to it: registration, heartbeats, forwarding, configuration."""
