"""What is done with an engine, as data: made from a number, kept in a file and played again."""
