"""The arithmetic of KV blocks, written once: it runs on ints, on columns and on Z3 terms."""
