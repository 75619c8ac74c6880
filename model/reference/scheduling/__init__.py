"""The scheduler: the choices of a step, and the processing of its output."""
