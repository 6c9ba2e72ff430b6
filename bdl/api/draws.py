"""Draws of a fit for other programs."""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import torch
from annotated_types import Ge, Le, Lt
from torch import Tensor

import bdl
from bdl.errors import InputError
from bdl.metrics.predictions import tensors_of
from bdl.metrics.targets import at_outputs
from bdl.posteriors import Empirical, Posterior

if TYPE_CHECKING:
    from bdl.api.fitted import Fitted

Count = Annotated[int, Ge(1), Le(10**6)]
Seed = Annotated[int, Ge(0), Lt(2**63)]


def to_inferencedata(fitted: "Fitted", draws: int, seed: int) -> Any:
    """Write draws of a posterior as ArviZ has them; see `bdl.Fitted.to_inferencedata`."""
    try:
        import arviz
    except ModuleNotFoundError as error:
        raise InputError(f"to_inferencedata needs arviz ({error}): pip install 'bdl-bench[mcmc]'") from None
    theta = drawn(fitted, draws, seed)
    seen = fitted.evaluation.trained
    f = fitted.evaluation.outputs(seen, fitted.draws._replace(samples=len(theta)), Empirical(theta))
    likelihood = at_outputs(fitted.problem, f, tensors_of(fitted.hyper)).log_prob(seen.y)
    return arviz.from_dict(
        posterior={"theta": theta.numpy()[None]},
        log_likelihood={"y": likelihood.numpy()[None]},
        observed_data={"y": seen.y.numpy()},
        dims={"theta": ["parameter"], "y": ["row"]},
        attrs=about(fitted),
    )


def drawn(fitted: "Fitted", draws: int, seed: int) -> Tensor:
    """Draw parameter vectors, (S, D), float64; of a set of vectors, take it."""
    posterior = fitted.double()
    atoms: Tensor | None = getattr(posterior, "atoms", None)
    return sample(posterior, draws, seed) if atoms is None else atoms


def sample(posterior: Posterior, draws: int, seed: int) -> Tensor:
    """Draw parameter vectors of a posterior in float64, (S, D)."""
    generator = torch.Generator().manual_seed(seed)
    return posterior.sample(torch.randn(draws, posterior.noise_dim, generator=generator, dtype=torch.float64))


def about(fitted: "Fitted") -> Mapping[str, Any]:
    """Describe a fit, for those who find its draws."""
    cell = fitted.cell
    return {
        "benchmark": cell.benchmark.name,
        "dataset": str(cell.dataset),
        "entry": cell.entry,
        "split": fitted.split,
        "hyper": json.dumps({name: float(value) for name, value in fitted.hyper.items()}),
        "versions": f"bdl-bench {bdl.__version__}, torch {torch.__version__}",
    }
