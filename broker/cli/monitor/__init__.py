"""The live view of a cluster: figures between two samples, drawn for a terminal."""
