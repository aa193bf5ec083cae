"""The halves of the two console commands: lines to records to batches, and fetches to records to lines."""
