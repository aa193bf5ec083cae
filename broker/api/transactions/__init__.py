"""APIs of transactions, for producers, brokers and administrators."""
