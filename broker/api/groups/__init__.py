"""APIs of classic, consumer and streams groups, and of their offsets."""
