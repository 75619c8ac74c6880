"""Reads whether the settings of a connector under test ask for an encoder-cache connector too. It
imports no vLLM."""

from collections.abc import Mapping
from typing import Any

ENCODER = "ec_transfer_config"
"""The setting that has the configuration of the encoder-cache connector."""


def only_encodes(extra: Mapping[str, Any]) -> bool:
    """Whether an engine with these settings of a connector encodes images for other engines, and
    does nothing else."""
    return ENCODER in extra and extra[ENCODER].get("ec_role") == "ec_producer"
