"""Traces: runs as files, and how they are read back."""
