"""What a pull request changes of vLLM's source, and what a run of vLLM reaches of it. Nothing here imports vLLM."""
