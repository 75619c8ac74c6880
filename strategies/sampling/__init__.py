"""Random episodes: Hypothesis chooses jobs and events."""
