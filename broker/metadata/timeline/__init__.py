"""PURE: the history of the metadata log in sentences."""
