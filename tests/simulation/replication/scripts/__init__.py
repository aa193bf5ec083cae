"""Scripted histories of the data plane, for what random schedules find too rarely."""
