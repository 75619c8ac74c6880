"""Known findings: where vLLM is known to break a check. One decorated function each, by topic.

A run that meets a known finding continues and counts it. None is selected by the version of vLLM: a
vLLM without the defect does not meet it.
"""
