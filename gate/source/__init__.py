"""What a pull request changes of the source of vLLM, and what a run reaches of it. It imports no
vLLM."""
