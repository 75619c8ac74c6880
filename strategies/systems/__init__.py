"""Search of transition systems over whole numbers: plainly, and quickly on columns."""
