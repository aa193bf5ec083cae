"""APIs of the records of partitions: produce, fetch, offsets by time and epoch, deletion."""
