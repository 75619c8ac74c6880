"""What tests of other projects use of kvproof."""

from kvproof.live.connectors.conformance import ConnectorConformance

__all__ = ["ConnectorConformance"]
