"""Which scores of chains are certified: their Monte-Carlo error is small beside the margin."""

from typing import TYPE_CHECKING

from bdl.metrics import get_metric_info

if TYPE_CHECKING:
    import pandas as pd

SHARE_OF_MARGIN = 0.2
"""Share of the margin that the Monte-Carlo error of a certified score has at most."""


def mark_certified_scores(rows: "pd.DataFrame", metric: str) -> "pd.Series[bool]":
    """Mark the rows whose score has a small Monte-Carlo error over chains.

    The margin is that about the score itself where margins are relative. Scores without an error
    are not certified.
    """
    errors = rows.get(f"{metric}_mcse")
    if errors is None:
        return rows[metric].isna() & False
    margins = rows[metric].map(get_metric_info(metric).margin_of)
    return errors <= SHARE_OF_MARGIN * margins
