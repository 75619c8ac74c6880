"""Verdicts and traces as text and files for users and CI systems."""
