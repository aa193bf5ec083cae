"""Immutable metadata images, the deltas between them, and the records from which they are folded; pure."""
