"""The difference between two machines: what one breaks and the other does not, on the same
stimuli."""
