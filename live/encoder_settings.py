"""How a connector under test asks for an encoder-cache connector too. Imports no vLLM."""

ENCODER = "ec_transfer_config"
"""The setting that has the configuration of the encoder-cache connector."""
