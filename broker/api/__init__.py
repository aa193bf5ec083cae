"""The request handlers: one file per API, joined by `serving/routes.py`. No sockets, no files, no tasks here."""
