"""Failures of TLS in words, without the places in OpenSSL's sources."""

import ssl


def explain(error: ssl.SSLError | ValueError) -> str:
    """Return the reason of a failure."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"certificate verify failed: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return (error.reason or "the connection ended").replace("_", " ").lower()
    return str(error)
