"""Federations for research, demonstrations and tests."""
