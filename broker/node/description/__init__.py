"""The state of this node, as DescribeNode answers it."""
