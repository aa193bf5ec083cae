"""Access control lists in the cluster plane: changes of entries, and the witness of what brokers decide."""
