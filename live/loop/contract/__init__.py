"""What the loop of an engine must keep."""
