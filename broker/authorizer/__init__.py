"""The standard authorizer (KIP-11, KIP-290, KIP-801): a persistent index of ACLs, and decisions over it. PURE."""
