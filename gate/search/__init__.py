"""The process of `kvproof gate` that drives both sides: which runs base and head take, what of them
is confirmed, and what is told."""
