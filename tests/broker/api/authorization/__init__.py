"""Tests of the permissions that handlers check item by item."""
