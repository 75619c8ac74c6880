"""Live vLLM: the real vLLM as a machine, behind an adapter."""
