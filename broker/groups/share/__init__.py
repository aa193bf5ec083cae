"""Share groups (KIP-932): members share partitions, whose states the share coordinator keeps."""
