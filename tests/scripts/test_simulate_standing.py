"""Intervals of ranks, copies of a method and smallest differences, simulated."""

import simulate_standing


def test_copies_are_not_told_apart_and_intervals_hold():
    """The full table is in docs/standing.md; 40 standings of twelve methods each."""
    shares = simulate_standing.simulate_ranks(5, 20, 0.5, False, repeats=40)
    assert shares["Intervals of ranks hold"] > 0.92
    assert shares["Copies not told apart"] >= 0.95


def test_the_smallest_difference_is_found_in_four_of_five_repetitions():
    """1500 repetitions have a standard error of 1 %."""
    for overlap in (0.0, 1 / 9):
        share = simulate_standing.simulate_detection(20, overlap, False, 1500)
        assert abs(share - 0.8) < 0.04
