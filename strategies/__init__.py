"""Strategies choose events: at random, exhaustively, for all sizes, or from a file."""
