"""What one machine breaks and another does not: all breaks by signature, on the same stimuli."""
