"""Invariants: what must be true of every machine, one small file each."""
