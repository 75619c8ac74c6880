"""The parts of a trace as a person reads it."""
