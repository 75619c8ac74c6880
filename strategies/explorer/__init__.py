"""The explorer: every state of a scope, breadth first."""
