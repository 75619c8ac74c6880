"""The reference: a machine that takes one of the behaviours that the spec allows, so that there is
a machine to explore."""
