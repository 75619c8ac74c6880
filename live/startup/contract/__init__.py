"""What every start of an engine must keep, one rule each."""
