"""The findings on real engines: one file each, with what a user sees."""
