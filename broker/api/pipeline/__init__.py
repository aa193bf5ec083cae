"""Stages between a request frame and its handler: authentication, authorization, quotas."""
