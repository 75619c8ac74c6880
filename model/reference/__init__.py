"""The reference: one machine that does something the spec allows, so that there is one to explore."""
