"""Comparisons of our numbers with the printed ones, as entries of tables, and figures of them."""
