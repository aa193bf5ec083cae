"""APIs of credentials, delegation tokens and ACLs."""
