"""Export of a node's measurements to monitoring systems."""
