"""SASL mechanisms, for servers and clients. Pure: messages come in and go out as bytes; no sockets, no event loop."""
