"""What happened in a run of vLLM, as data that checks judge: nothing of vLLM is in it."""
