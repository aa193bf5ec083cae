"""The client side of SASL: mechanisms, logins, and the requests that carry them. Does no IO."""
