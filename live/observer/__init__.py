"""Observes a real scheduler, driven or watched, by hooks around its methods and by reading its
state."""
