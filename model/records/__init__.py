"""Records: the last events of a watched engine as files, and how they are read back."""
