"""APIs of topics: metadata, creation, deletion."""
