"""What a watched engine is judged by: for each kind of part of an engine a file."""
