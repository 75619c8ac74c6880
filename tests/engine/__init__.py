"""Real engines with tiny random weights, each in a process of its own."""
