"""The request handlers: one file per API, joined by the table in `routes.py`. No sockets, no files, no tasks here."""
