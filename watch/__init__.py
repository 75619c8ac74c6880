"""Watches a running vLLM: it drives nothing, and asks the same invariants after each event."""
