"""The transaction coordinator's decisions (KIP-98, KIP-360, KIP-890), without IO and clocks of their own."""
