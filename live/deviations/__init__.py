"""Known deviations: where vLLM is known to leave the spec. One file for each deviation, named after
its finding.

A run that meets a deviation continues and counts it. No deviation is selected by the version of
vLLM: a vLLM without the deviation does not meet it.
"""
