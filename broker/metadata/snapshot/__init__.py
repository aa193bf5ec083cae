"""KIP-630 snapshots of the metadata log: encoding, checking, folding and loading; pure."""
