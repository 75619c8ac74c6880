"""Verdicts and traces as what a person or a CI system reads."""
