"""Observes a real scheduler, driven or watched: its calls, and its state."""
