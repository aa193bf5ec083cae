"""Recent rates over windows, tables of sensors, and limits on new connections."""
