"""Optional features of an engine: a store, drafts, steps in flight, follow-up turns."""
