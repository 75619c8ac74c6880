"""The tests of kvproof, and what they share."""
