"""A machine that is watched: what it does, asked of the spec, and its traces followed again."""
