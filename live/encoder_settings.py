"""How the settings of a connector under test ask for an encoder-cache connector. Imports no vLLM."""

ENCODER = "ec_transfer_config"
"""The setting that gives its engine an encoder-cache connector too."""
