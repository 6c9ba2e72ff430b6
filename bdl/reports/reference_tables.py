"""Tables of sampled references: chains, certificates and durations."""

import re
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from bdl.errors import InputError, parse_json
from bdl.references.certificate import CERTIFIED, Certificate, DrawQuality, FunctionCertificate
from bdl.reports.layout import Section


def read_certificates(folder: Path) -> list[tuple[str, int, DrawQuality]]:
    """Read what `bdl.plan.reference_posteriors.copy_certificates` has written to a folder.

    Return data sets, splits and certificates, in alphabetical order.
    """
    certificates = []
    for path in (folder / "references").glob("*.json"):
        match = re.fullmatch(r"(.+?)(?:-(\d+))?(?:~\d+)?", path.stem)
        assert match is not None, "every file name matches"
        dataset, split = match.groups()
        try:
            content = dict(parse_json(path.read_text("utf-8"))["certificate"])
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise InputError(
                f"{path} tells of no reference ({type(error).__name__}): publish the run again"
            ) from None
        # only certificates of functions have an agreement between samplers
        kind = FunctionCertificate if "agreement" in content else Certificate
        certificates.append((dataset, int(split or 0), kind.read(content)))
    return sorted(certificates, key=lambda entry: entry[:2])


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
                f"{np.minimum(worst['bulk_ess'], worst['tail_ess']):.0f}",
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
