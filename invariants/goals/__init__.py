"""Coverage goals: what a search must have met, a file for each feature."""
