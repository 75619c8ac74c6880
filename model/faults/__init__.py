"""Historical defects, one file each: one replaced rule."""
