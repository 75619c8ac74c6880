"""Base against head: what a pull request changes of what vLLM does."""
