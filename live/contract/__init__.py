"""The contract: every symbol of vLLM that the adapter uses, checked before anything is driven."""
