"""TLS: settings, key material, contexts, and the principals of certificates. Synchronous; opens no connection."""
