"""Predictions as scores need them: sums over posterior samples, without all outputs in memory at
once.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from math import log
from typing import NamedTuple

import torch
from torch import Tensor
from torch.distributions import Distribution
from torch.utils._pytree import tree_leaves

from bdl.errors import InputError
from bdl.metrics.targets import (
    Examples,
    build_answer_distribution,
    build_target_distribution,
    query_rows,
)
from bdl.models.problem import Buffers, Hyper, Problem
from bdl.posteriors.base import Posterior, is_linearised, is_multimodal
from bdl.posteriors.predictive import is_predictive
from bdl.posteriors.tensors import as_type
from bdl.rng import normal_slice

_CPU = torch.device("cpu")
_PARAMETERS_AT_ONCE = 1 << 22
"""Parameters sampled together; their noise takes about ten times as many bytes as they do, 160
MB.
"""

VALUES_AT_ONCE = 1 << 22
"""Values of the widest layer evaluated together; a few layers of them take some 64 MB and stay
near the cache.
"""


SHARED_STATISTICS = (
    "batch_norm: running keeps one set of statistics, and the posterior has several modes: "
    "use batch_norm: recompute, of a network that a factory makes"
)
"""Why predictions are refused that would give all modes the running statistics of one of them."""


class Predictions(NamedTuple):
    """Predictions of n rows by S posterior samples; float64, original target units.

    There are C classes; C is 0 where targets are numbers.
    """

    log_likelihood: Tensor
    """log (1/S) sum_s p(y_i | theta_s), nats, (n,)."""
    sample_log_likelihood: Tensor
    """sum_i log p(y_i | theta_s), nats, (S,)."""
    mean: Tensor
    """Predictive mean, (n,); (0,) for labels."""
    probabilities: Tensor
    """(1/S) sum_s p(class c | theta_s), (n, C)."""
    squares: Tensor
    """(1/S) sum_s p(class c | theta_s)^2, (n, C)."""


class Draws(NamedTuple):
    """Which samples of the posterior are taken."""

    samples: int
    """Number of samples, S."""
    key: Tensor
    """Key of the trial's stream "predict", int32, (2,)."""
    step: int = 0
    """First counter word: draws of different steps are independent."""


def predict(
    problem: Problem,
    posterior: Posterior,
    examples: Examples,
    hyper: Hyper,
    buffers: Buffers,
    draws: Draws,
    training: Callable[[], Tensor] | None = None,
) -> Predictions:
    """Predict rows by samples of the posterior.

    Float32 outputs of the model, float64 from their restoration on.

    Samples and rows are handled in pieces, so that memory does not grow with S or with the
    activations of n rows. The pieces change nothing but rounding. It works under `vmap`, over one
    trial each, on the device of the posterior.

    Hyper-parameters are those of the likelihood, original units, scalars. Sample s takes the
    normals s * noise_dim to (s + 1) * noise_dim of the flat stream of ceil(S * noise_dim / 2)
    pairs; a posterior that has no more vectors than S gives each of them once. `training` gives
    training inputs, (n, d), to models that recompute statistics from them.
    """
    if is_predictive(posterior):
        target = build_answer_distribution(
            problem, query_rows(problem, posterior, examples), examples, hyper
        )
        return _average_sums(
            _sum_over_samples(target, examples.y.to(_CPU, torch.float64), problem),
            target.batch_shape[0],
        )
    device = tree_leaves(posterior)[0].device
    y = examples.y.to(device, torch.float64)
    values = {name: value.to(device) for name, value in hyper.items()}
    total: Predictions | None = None
    for pieces in evaluate_outputs(problem, posterior, examples, buffers, draws, training):
        sums = []
        for rows, f in pieces:
            target = build_target_distribution(problem, f, values)
            sums.append(_sum_over_samples(target, y[rows], problem))
        joined = _join_rows(sums)
        total = joined if total is None else _join_samples(total, joined)
    assert total is not None
    return _average_sums(total, len(total.sample_log_likelihood))


def evaluate_outputs(
    problem: Problem,
    posterior: Posterior,
    examples: Examples,
    buffers: Buffers,
    draws: Draws,
    training: Callable[[], Tensor] | None = None,
    vectors: Tensor | None = None,
) -> Iterator[Iterator[tuple[slice, Tensor]]]:
    """Evaluate the model at samples of the posterior, in pieces; arguments as in `predict`.

    Yields, for some S of the samples, an iterator of successive rows and the outputs there in
    original units, float64, (S, rows, d_out). `vectors`, (S, D), stand for samples of the posterior
    where they are drawn already. `InputError` if the posterior has several modes, and the model
    running statistics of one of them.
    """
    if buffers and is_multimodal(posterior):
        raise InputError(SHARED_STATISTICS)
    device = tree_leaves(posterior)[0].device
    posterior, x = as_type(posterior, torch.float32), examples.x.to(device, torch.float32)
    unit, origin = (value.to(device) for value in examples.scale)
    running_statistics = as_type(dict(buffers), torch.float32, device)
    training_inputs = None
    if problem.recomputes and training:
        training_inputs = training().to(device, torch.float32)

    evaluate = (
        partial(problem.predict_linearised, posterior.mean())
        if is_linearised(posterior)
        else problem.predict
    )

    def evaluate_rows(
        theta: Tensor, rows: slice, statistics: Buffers, mapped: int | None
    ) -> Tensor:
        def evaluate_sample(sample: Tensor, buffers: Buffers) -> Tensor:
            return evaluate(sample, x[rows], buffers)

        f = torch.func.vmap(evaluate_sample, (0, mapped))(theta, statistics)
        # float32 has no digits left for a spread of 1 about an origin of 1e8
        return problem.likelihood.restore(f.double(), unit, origin)

    def split_rows(theta: Tensor) -> Iterator[tuple[slice, Tensor]]:
        size = max(1, VALUES_AT_ONCE // (len(theta) * problem.widest))
        batch_statistics = (
            None
            if training_inputs is None
            else torch.func.vmap(problem.recompute_statistics, (0, None))(theta, training_inputs)
        )
        for start in range(0, len(x), size):
            rows = slice(start, start + size)
            # running statistics are the same for all samples; recomputed ones are of one each
            if batch_statistics is None:
                yield rows, evaluate_rows(theta, rows, running_statistics, None)
            else:
                yield rows, evaluate_rows(theta, rows, batch_statistics, 0)

    samples = (
        draw_vectors(posterior, draws)
        if vectors is None
        else iter(_split_vectors(vectors.to(device, torch.float32)))
    )
    return (split_rows(theta) for theta in samples)


def draw_samples(posterior: Posterior, draws: Draws) -> Iterator[Tensor]:
    """Draw samples in pieces, (s, D) each, so that few parameters and noise exist at a time."""
    leaf = tree_leaves(posterior)[0]
    device, width = leaf.device, posterior.noise_dim
    # of the whole stream, whatever the piece: so each sample has the same normals in any piece
    pairs = (draws.samples * width + 1) // 2
    keys = draws.key.to(device).unsqueeze(0)
    step = torch.tensor(draws.step, dtype=torch.int32, device=device)
    size = max(1, _PARAMETERS_AT_ONCE // max(posterior.dim, width))
    for start in range(0, draws.samples, size):
        stop = min(start + size, draws.samples)
        noise = normal_slice(keys, step, pairs, start * width, stop * width)
        yield posterior.sample(noise.to(leaf.dtype).view(stop - start, width))


def summarise(problem: Problem, f: Tensor, y: Tensor, hyper: Hyper) -> Predictions:
    """Sum up given outputs of S samples in original units, (S, n, d_out).

    Pure, works under `vmap`.
    """
    return _average_sums(
        _sum_over_samples(build_target_distribution(problem, f, hyper), y, problem), len(f)
    )


def as_tensors(hyper: Mapping[str, float]) -> dict[str, Tensor]:
    """Return hyper-parameters as float64 scalars."""
    return {name: torch.tensor(value, dtype=torch.float64) for name, value in hyper.items()}


def draw_vectors(posterior: Posterior, draws: Draws) -> Iterator[Tensor]:
    """Draw samples; of a posterior that has no more vectors than that, take each once instead."""
    atoms: Tensor | None = getattr(posterior, "atoms", None)
    if atoms is None or len(atoms) > draws.samples:
        return draw_samples(posterior, draws)
    return iter(_split_vectors(atoms))


def _split_vectors(vectors: Tensor) -> tuple[Tensor, ...]:
    """Cut vectors, (S, D), into pieces, (s, D) each, as `draw_samples` draws them."""
    return torch.split(vectors, max(1, _PARAMETERS_AT_ONCE // vectors.shape[-1]))


def _sum_over_samples(target: Distribution, y: Tensor, problem: Problem) -> Predictions:
    """Add up over samples: fields as in `Predictions`, times S.

    The first is the logarithm of a sum.
    """
    densities = target.log_prob(y.double())
    if problem.likelihood.fits(0):
        none = torch.zeros_like(y, dtype=torch.float64).unsqueeze(-1)[:, :0]
        return Predictions(
            densities.logsumexp(0), densities.sum(1), target.mean.sum(0), none, none
        )
    labels = target.enumerate_support(expand=False)
    probabilities = target.log_prob(labels).exp().movedim(0, -1)
    none = torch.zeros_like(y, dtype=torch.float64)[:0]
    sums = probabilities.sum(0), probabilities.square().sum(0)
    return Predictions(densities.logsumexp(0), densities.sum(1), none, *sums)


def _join_rows(pieces: list[Predictions]) -> Predictions:
    """Join sums over the same samples of successive rows."""
    if len(pieces) == 1:
        return pieces[0]
    joined = [torch.cat(field) for field in zip(*pieces, strict=True)]
    per_sample = torch.stack([piece.sample_log_likelihood for piece in pieces]).sum(0)
    return Predictions(*joined)._replace(sample_log_likelihood=per_sample)


def _join_samples(earlier: Predictions, later: Predictions) -> Predictions:
    """Join sums over successive samples of the same rows."""
    return Predictions(
        # a likelihood of many nats underflows float64: sums of likelihoods stay logarithms
        torch.logaddexp(earlier.log_likelihood, later.log_likelihood),
        torch.cat([earlier.sample_log_likelihood, later.sample_log_likelihood]),
        earlier.mean + later.mean,
        earlier.probabilities + later.probabilities,
        earlier.squares + later.squares,
    )


def _average_sums(sums: Predictions, count: int) -> Predictions:
    return Predictions(
        sums.log_likelihood - log(count),
        sums.sample_log_likelihood,
        sums.mean / count,
        sums.probabilities / count,
        sums.squares / count,
    )
