"""Search of transition systems over integers: a plain search, and a fast search on numpy
columns."""
