"""kvproof: model checker and property-test harness for the KV-cache accounting of vLLM V1."""

__version__ = "0.1.0"
