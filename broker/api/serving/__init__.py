"""Shared parts of the request handlers: route tables, dispatch, request context, forwarding, and common checks."""
