"""Each module here has parts of a watched engine: what the checks are asked about after an
event."""
