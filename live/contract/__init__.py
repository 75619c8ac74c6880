"""The contract: all of vLLM that the adapter touches, checked before anything is driven."""
