"""Drives a real scheduler: it takes the steps, and a symbolic worker carries them out."""
