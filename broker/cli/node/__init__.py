"""Commands' parts that prepare and start nodes: formatting, local clusters, containers."""
