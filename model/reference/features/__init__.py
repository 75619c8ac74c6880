"""What an engine may have besides: a store, drafts, steps in flight, follow-up turns."""
