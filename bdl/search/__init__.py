"""Hyper-parameter search.

`bdl.search.proposals` proposes settings, `bdl.search.crossval` scores them on folds of the
training rows, and `bdl.search.choice` chooses the best.
"""
