"""The outcome of a verification in words."""

from pathlib import Path
from textwrap import fill

from bdl.stored_results.verification import RELATIVE_TOLERANCE, ScoreDifference, Verification

_MAX_LISTED_DIFFERENCES = 20
_WIDTH = 80

_MEANING = (
    "This shows that scores follow from the posteriors in the folder, by this version's code. It "
    "does not show that training leads to these posteriors, for which they have to be fitted "
    "again (bdl-bench run), nor how long it took."
)


def describe_verification(folder: Path, verification: Verification) -> str:
    """Describe the outcome of a verification, in lines of at most 80 columns."""
    scores = verification.equal_scores + verification.close_scores
    agreement = "to the last bit"
    if verification.close_scores:
        agreement = (
            f"{verification.equal_scores:,} of them to the last bit and the others within "
            f"{RELATIVE_TOLERANCE:g} of their size"
        )
    lines = [
        f"{folder}: {scores:,} scores of {verification.fits:,} fits follow from their "
        f"posteriors, {agreement}."
        if scores
        else f"{folder}: no score could be verified."
    ]
    for reason, count in verification.unverified_scores.items():
        lines.append(f"Not verified: {count:,} scores of these fits {reason}.")
    for reason, count in verification.unverified_fits.items():
        lines.append(f"Not verified: {count:,} fits {reason}.")
    differences = verification.differences
    if differences:
        lines.append(f"{len(differences):,} scores do not follow from their posteriors:")
        lines += [_describe_difference(one) for one in differences[:_MAX_LISTED_DIFFERENCES]]
        if len(differences) > _MAX_LISTED_DIFFERENCES:
            lines.append(f"and {len(differences) - _MAX_LISTED_DIFFERENCES:,} more")
    lines.append(_MEANING)
    return "".join(f"{fill(line, _WIDTH, break_long_words=False)}\n" for line in lines)


def _describe_difference(difference: ScoreDifference) -> str:
    published, recomputed = (
        "no number" if score is None else f"{score!r}"
        for score in (difference.published_score, difference.recomputed)
    )
    return (
        f"- {difference.cell}, split {difference.split}, {difference.metric}: "
        f"published {published}, computed {recomputed}"
    )
