"""The parts that a node is put together from, each built whole; `broker.app` joins them and runs the node."""
