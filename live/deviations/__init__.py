"""Where vLLM is known to leave the spec: one file for each deviation, named after its finding.

A run that meets one goes on, and says which it met. None is chosen by the version of vLLM: one that
a vLLM does not have is not met.
"""
