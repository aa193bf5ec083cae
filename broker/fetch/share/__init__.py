"""Share fetches: sessions, acknowledgements, rounds of reads, and waiting (KIP-932)."""
