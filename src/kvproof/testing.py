"""What tests of other projects use of kvproof."""

from kvproof.gate.connectors.conformance import ConnectorConformance

__all__ = ["ConnectorConformance"]
