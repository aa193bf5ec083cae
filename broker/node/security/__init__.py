"""Authentication and authorization of a node: SASL, logins at other nodes, the authorizer."""
