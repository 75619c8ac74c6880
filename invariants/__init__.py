"""Invariants: what must be true of every machine. One small file for each invariant."""
