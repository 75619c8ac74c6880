"""Conformance of a machine: its steps are checked against the spec, and its traces are replayed."""
