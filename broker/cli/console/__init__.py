"""Parts of the console producer and the console consumer: line formats, a producer, a fetcher, group membership."""
