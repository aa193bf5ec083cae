"""KRaft without IO: elections, commits and voter changes (KIP-595, KIP-630, KIP-853, KIP-996).

Equal inputs give equal outputs: the caller passes in time, randomness, disk contents and messages. `core.py` is the
state machine, `ready.py` its output with the required order, and `messages.py` its requests and responses.
"""
