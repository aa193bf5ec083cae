"""What replicas of the metadata log say to each other, as Kafka's messages: every request and answer, both ways.

One module per kind of talk. `decode_…` reads what came in, in whatever version, and leaves what an old version cannot
say unknown; `encode_…` makes a message. Requests are encoded for a version, because versions say the same in different
fields; answers are not, because what a version has no room for is ignorable there.

Checks here are about shape alone: the one partition there is. What a request may do is the core's to say.
"""
