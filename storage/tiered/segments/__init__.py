"""Writing, reading and checking one remote segment."""
