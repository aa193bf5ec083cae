"""The network side of a node: listeners, connections, frames. It is given a `dispatch` callable and knows no API."""
