"""The web console: JSON views of the whole cluster, actions, and the page. Loaded at the first request."""
