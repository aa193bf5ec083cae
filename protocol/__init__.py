"""Bytes of Kafka's protocol and log records <-> typed values. Knows no sockets, files, event loop or storage.

Where to look: `schema` (the JSON dialect), `compiler` (schema and version -> encode and decode functions), `messages`
(generated classes, one per message for all its versions), `headers` and `framing` (what surrounds a message on a
connection), `records` (record batches).
"""
