"""Translation between the quorum's requests and responses and Kafka's messages, in both directions.

One module per group of APIs. `decode_…` accepts any version and sets fields that an old version lacks to unknown;
`encode_…` builds a message. Requests are encoded for a version, because versions use different fields for the same
value. Responses are not, because fields that a version lacks are ignorable.
"""
