"""Immutable metadata images, the deltas between them, and the records that they are folded from; pure."""
