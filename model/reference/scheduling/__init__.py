"""The scheduler: what a step may choose, and what follows from its output."""
