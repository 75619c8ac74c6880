"""The parts of `kvproof gate`: base and head in processes of their own, driven and compared."""
