"""The search for a plan that breaks a check of connectors: made smaller, tried alone, and told."""
