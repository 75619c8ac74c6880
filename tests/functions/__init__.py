"""Single functions of vLLM, called with numbers: one small driver each."""
