"""Coverage goals: what a search must meet. One file for each feature."""
