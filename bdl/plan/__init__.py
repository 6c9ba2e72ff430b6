"""What a command will do: the cells of a benchmark, checked, and what identifies their numbers."""
