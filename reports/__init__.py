"""This package makes text and files of verdicts and traces, for users and CI systems."""
