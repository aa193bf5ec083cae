"""The codec between bytes of Kafka's protocol and log records, and typed values. No sockets, files, event loop or
storage.

Modules: `schema` (the JSON dialect), `compiler` (schema and version -> encode and decode functions), `messages`
(generated classes, one per message for all its versions), `headers` and `framing` (the surroundings of a message on a
connection), `records` (record batches).
"""
