"""Tables of sampled references: chains, certificates and durations."""

from collections.abc import Iterable

from bdl.references.certificate import CERTIFIED, DrawQuality
from bdl.reports.layout import Section


def reference_sections(
    benchmark: str, published: Iterable[tuple[str, int, DrawQuality]]
) -> list[Section]:
    """Lay out a line for each sampled reference, by its data set, split and certificate."""
    lines = []
    for dataset, split, certificate in published:
        worst = {rule.statistic: certificate.worst_of(rule) for rule in certificate.rules}
        lines.append(
            (
                dataset,
                f"{split}",
                f"{certificate.origin.sampler}, {certificate.chains} x {certificate.draws}",
                f"{worst['r_hat']:.4f}",
                f"{min(worst['bulk_ess'], worst['tail_ess']):.0f}",
                certificate.describe_failures() or CERTIFIED,
                f"{certificate.origin.seconds:.0f}",
            )
        )
    columns = [
        "Dataset",
        "Split",
        "Chains x draws",
        "R-hat",
        "Smallest ESS",
        "Certificate",
        "Seconds",
    ]
    return [Section.of(f"{benchmark}: sampled references", columns, lines)] if lines else []
