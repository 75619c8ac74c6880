"""The abstract state machine: pure functions over small immutable values."""
