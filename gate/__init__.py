"""The tool that judges a pull request: base and head of vLLM are driven alike, and compared."""
