"""Writing, reading and checking of single remote segments."""
