"""APIs of the metadata quorum, and requests to the active controller."""
