"""The state of a cluster as facts, and the rules that find what is wrong with it."""
