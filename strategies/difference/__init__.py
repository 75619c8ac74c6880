"""What one vLLM does: all that breaks on it, by signature, so that two can be compared."""
