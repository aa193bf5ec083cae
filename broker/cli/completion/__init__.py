"""Shell completion: click's scripts, and the names of topics and groups of a running cluster."""
