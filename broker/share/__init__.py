"""Share partitions and share sessions of KIP-932: pure decisions of partition leaders."""
