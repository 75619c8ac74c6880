"""The counts of a state, and how each event changes them: what is proved for all sizes."""
