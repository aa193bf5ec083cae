"""KRaft without IO: who leads, what is committed, who votes (KIP-595, KIP-630, KIP-853, KIP-996).

Same inputs, same outputs, anywhere: time, randomness, disks and peers are given. `core.py` is the machine, `ready.py`
what it wants done and in which order, `messages.py` what it says to its peers.
"""
