"""Historical defects. One file for each: one replaced rule."""
