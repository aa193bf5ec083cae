"""The state of share partitions (KIP-932): a coordinator shard of `__share_group_state`. Pure."""
