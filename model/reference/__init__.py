"""The reference: one machine that does what the spec allows, so that there is one to explore."""
