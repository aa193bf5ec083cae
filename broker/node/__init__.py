"""The parts of a node, each built completely; `broker.app` joins them and runs the node."""
