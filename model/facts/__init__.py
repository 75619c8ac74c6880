"""Facts: what happened in a run of vLLM, as plain data that checks judge. Nothing here imports
vLLM."""
