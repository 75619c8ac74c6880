"""Z3 proves the arithmetic of the spec for all sizes at once, or finds numbers that break it."""
