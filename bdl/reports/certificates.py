"""Certificates of draws by chains, and of scores by them: their error is small beside the margin."""

import re
from typing import TYPE_CHECKING

from bdl.metrics import get_metric_info
from bdl.records.row import CERTIFICATE_DETAIL
from bdl.references.certificate import CERTIFIED, FAILURES, FUNCTION_RULES

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


def certificate_notes(rows: "pd.DataFrame") -> list[str]:
    """Count the fits whose draws are certified, and write what is wrong with those of the others.

    `rows` as for `compare_with_papers`; the draws are those of chains of networks.
    """
    certificates = rows[CERTIFICATE_DETAIL].dropna()
    if certificates.empty:
        return []
    broken = sorted({int(number) for text in certificates for number in re.findall(r"\d+", text)})
    count = (certificates == CERTIFIED).sum()
    note = f"The draws are certified on {count} of {len(certificates)} splits"
    if broken:
        statistics = {rule.number: rule.statistic for rule in FUNCTION_RULES}
        failures = ", ".join(FAILURES[statistics[number]] for number in broken)
        note += f"; elsewhere {failures} (docs/references.md)"
    return [f"{note}."]


def score_certificate_notes(rows: "pd.DataFrame", metric: str) -> list[str]:
    """Count the fits by chains whose score is certified, and name the splits of the others."""
    column = f"{metric}_mcse"
    if CERTIFICATE_DETAIL not in rows or column not in rows:
        return []
    by_chains = rows[CERTIFICATE_DETAIL].notna() & rows[column].notna()
    if not by_chains.any():  # most entries; a selection of no rows takes longer
        return []
    chains = rows[by_chains]
    uncertified = chains["split"][~mark_certified_scores(chains, metric)].tolist()
    note = f"Score certified on {len(chains) - len(uncertified)} of {len(chains)} splits"
    if uncertified:
        note += f", not on {', '.join(map(str, uncertified))}"
    return [f"{note}: its Monte-Carlo error over chains is at most a fifth of the margin."]
