"""Laplace's approximation: a Gaussian at the mode of the posterior, with the curvature there; of the last layer alone.

Its precision is that of the prior and the curvature of the likelihood at the mode: minus the Hessian, or the
generalised Gauss-Newton matrix H of `bdl.models.mode`. This one is never indefinite and needs no exact mode, so
that it suits networks, also such with kinks. It is exact for the model linearised at the mode, and then predictions
should be that model's, which `linearised` asks for (Immer, Korzepa and Bauer 2021): under theta ~ N(mode, S) outputs
are N(f(mode), J S J^T).
"""

from dataclasses import dataclass
from functools import partial
from typing import Annotated, Literal, NamedTuple, cast

import torch
from annotated_types import Ge
from torch import Tensor

from bdl.errors import InputError
from bdl.methods.base import Direct, Noise, Shapes, StartedMethod
from bdl.methods.counters import StepCounters
from bdl.methods.optim import DescentState
from bdl.methods.point_estimate import Adam
from bdl.models.linear import derivatives, is_glm, prior_precision, problem_log_prob
from bdl.models.mode import Slopes, climb, gauss_newton, kronecker, laplace
from bdl.models.modules import GivenModule, Module
from bdl.models.networks import Linear
from bdl.models.priors import PrecisionPrior
from bdl.models.problem import Batch, Hyper, Problem, log_joint, whole
from bdl.posteriors import FullGaussian, LastLayer, Linearised

_MOST, _MOST_OF_LAYER = 2000, 10_000
"""Parameters whose Hessian is formed and decomposed in seconds; and those of a last layer whose matrix is formed."""


@dataclass(frozen=True)
class Laplace(Direct):
    """N(mode, H^{-1}) with H the curvature of -log p(D, theta), prior included, at the mode (Bishop 2006, section 4.4).

    The mode is found by Newton's method. A linear model with one output starts at 0, and has H = diag(gamma) - X^T
    diag(l'') X; others start at their own start, so that the seed can decide which of several modes it is, and a
    network at hand at its weights. Where the curvature is not the Hessian, L-BFGS climbs instead; a network at hand it
    brings near its mode first.

    Parameters
    ----------
    curvature
        ``"hessian"``; ``"ggn"``, the Gauss-Newton matrix; or ``"kronecker"``, that by Kronecker factors for each dense
        layer; null for the Hessian, and the Gauss-Newton matrix of a network at hand.
    linearised
        Whether predictions are those of the model linearised at the mode.
    climb
        Whether the mode is looked for; if not, the approximation is at the start, the weights of a trained network.
    """

    curvature: Literal["hessian", "ggn", "kronecker"] | None = None
    linearised: bool = False
    climb: bool = True

    def check(self, problem: Problem) -> None:
        if problem.dim > _MOST:
            raise InputError(f"laplace forms the Hessian of {problem.dim} parameters: use a model of {_MOST} at most")
        if not isinstance(problem.prior, PrecisionPrior):
            raise InputError("laplace needs a prior on the parameters themselves: use the prior 'gaussian'")
        curvature = self._curvature(problem)
        if not self.climb and (curvature == "hessian" or not isinstance(problem.model, Module)):
            raise InputError("climb: false is for a trained network, and not with its Hessian: use curvature: ggn")
        if curvature != "hessian" and problem.recomputes:
            raise InputError("under batch normalisation no row has an output of its own: use layer normalisation")

    def fit(self, problem: Problem, x: Tensor, y: Tensor, hyper: Hyper, seed: int = 0) -> FullGaussian:
        """Return the approximation; `seed` is that of the start.

        Raises `InputError` if a value is not finite, or there is no maximum with a definite curvature.
        """
        density = partial(log_joint, problem=problem, batch=whole(x, y), hyper=hyper)
        family, glm = Linearised if self.linearised else FullGaussian, is_glm(problem)
        curvature, theta = self._curvature(problem), _start(problem, x, seed)
        if self.climb and not glm and (curvature != "hessian" or isinstance(problem.model, GivenModule)):
            theta = climb(density, theta)
        if curvature == "hessian" or glm:
            theta, scale = laplace(density, theta, partial(_slopes, problem, x, y, hyper) if glm else None)
        if curvature == "hessian":
            return family.from_covariance(theta, scale @ scale.T)
        H = (gauss_newton if curvature == "ggn" else kronecker)(problem, theta, x, hyper)
        root, info = torch.linalg.cholesky_ex(H + prior_precision(problem, hyper).diag())
        if bool(info):
            raise InputError(f"the {curvature} curvature is not definite: check the data, or raise prior_precision")
        return family.from_covariance(theta, torch.cholesky_inverse(root))

    def _curvature(self, problem: Problem) -> str:
        return self.curvature or ("ggn" if isinstance(problem.model, GivenModule) else "hessian")


def _start(problem: Problem, x: Tensor, seed: int) -> Tensor:
    if is_glm(problem):
        return x.new_zeros(problem.dim)
    if isinstance(problem.model, GivenModule):
        return problem.model.weights.to(x)
    noise = torch.randn(problem.dim, generator=torch.Generator().manual_seed(seed), dtype=x.dtype)
    return problem.initial(noise)


def _slopes(problem: Problem, x: Tensor, y: Tensor, hyper: Hyper, theta: Tensor) -> Slopes:
    """Differentiate the log-likelihood of each row by its output, and so log p(D, theta) by the parameters."""
    design, gamma = cast(Linear, problem.model).design(x), prior_precision(problem, hyper)
    value, first, second = derivatives(lambda f: problem_log_prob(problem, f, y, hyper), design @ theta)
    return Slopes(
        value.sum() + problem.log_prior(theta, hyper),
        design.T @ first - gamma * theta,
        gamma.diag() - (design.T * second) @ design,
    )


class State(NamedTuple):
    """What has been descended to, and what has been added up there."""

    point: DescentState  # Parameters and Adam's moments
    curvature: Tensor  # Sum of J^T Lambda J over the rows seen, (k, k)
    seen: Tensor  # Rows seen, a scalar
    prior: Tensor  # Prior precision of the last layer, (k,)
    rows: Tensor  # Training rows N, a scalar


@dataclass(frozen=True)
class LastLayerLaplace(StartedMethod):
    """Laplace's approximation of the last layer (Kristiadi, Hein and Hennig 2020; Daxberger et al. 2021).

    Adam descends the cost of `bdl.methods.point_estimate`. After `descent_epochs` it stands still, and the epoch that
    follows adds up the generalised Gauss-Newton matrix of the last layer's k parameters,

        H = sum_i J_i^T Lambda_i J_i + diag(prior precision),

    J_i being the derivative of the outputs of row i and Lambda_i the Fisher information of its likelihood. Outputs are
    linear in the last layer, so that H has a block sum_i (Lambda_i)_cd phi_i phi_i^T for each pair of outputs c, d,
    with phi_i what enters the layer. Under batch normalisation that is what enters in training minibatches.

    Parameters
    ----------
    descent_epochs
        Epochs of descent; train for one more. Until the matrix is there the precision is that of the prior.
    """

    descent_epochs: Annotated[int, Ge(1)] = 1

    @property
    def _adam(self) -> Adam:
        return Adam(initial_scale=self.initial_scale)

    @property
    def idle_epochs(self) -> int:
        """Epochs after which there must be another."""
        return self.descent_epochs

    def check(self, problem: Problem) -> None:
        if (size := _size(problem)) > _MOST_OF_LAYER:
            raise InputError(f"the last layer has {size} parameters: its matrix is formed for {_MOST_OF_LAYER} at most")

    def init(self, problem: Problem, noise: Noise) -> State:
        point = self._adam.init(problem, noise)
        ones = torch.ones_like(point.params["theta"][-_size(problem) :])
        curvature = torch.zeros_like(ones).unsqueeze(1) * ones
        return State(point, curvature, 0 * ones[0], ones, ones[0])

    def step_noise(self, problem: Problem) -> Shapes:
        """Declare none, and build the network that puts out what enters the last layer before it is mapped."""
        problem.model.dim(problem.d_in, problem.layout.last_layer[0])
        return {}

    def phase(self, counters: StepCounters) -> str:
        return "step" if counters.epoch < self.descent_epochs else "look"

    def step(self, state: State, batches: Batch, hyper: Hyper, noise: Noise, problem: Problem) -> State:
        point = self._adam.step(state.point, batches, hyper, noise, problem)
        prior = (torch.zeros_like(point.params["theta"]) + problem.prior_precision(hyper))[-len(state.prior) :]
        return state._replace(point=point, prior=prior, rows=batches.n)

    def look(self, state: State, batches: Batch, hyper: Hyper, noise: Noise, problem: Problem) -> State:
        """Add the matrix of a minibatch."""
        inputs = _inputs(problem, state.point.params["theta"], batches.x)
        n_in, n_out, bias = problem.layout.last_layer
        weight, *shift = torch.split(state.point.params["theta"][-len(state.prior) :], [n_in * n_out, *[n_out] * bias])
        f = inputs[:, :n_in] @ weight.view(n_out, n_in).T + sum(shift)
        root = problem.likelihood.root_fisher(f, hyper, batches.y_unit)
        factors = root.mT.unsqueeze(-1) * inputs[:, None, None]  # (M, r, out, in), with r columns of the root
        parts = (factors[..., :n_in], factors[..., n_in:])  # biases come last
        rows = torch.cat([part.flatten(2) for part in parts], 2).flatten(0, 1)
        return state._replace(curvature=state.curvature + rows.T @ rows, seen=state.seen + len(inputs))

    def posterior(self, state: State) -> LastLayer:
        """Return N(theta, H^-1) in the last layer; the sum over rows that were left out is made up for."""
        share = state.rows / state.seen.clamp(min=1)
        precision = share * state.curvature + state.prior.diag_embed()
        root: Tensor = torch.linalg.cholesky_ex(precision).L
        return LastLayer(state.point.params["theta"], root)


def _size(problem: Problem) -> int:
    n_in, n_out, bias = problem.layout.last_layer
    return n_out * (n_in + bias)


def _inputs(problem: Problem, theta: Tensor, x: Tensor) -> Tensor:
    """Return what enters the last layer, (M, in), with a last column of ones where it has biases.

    A last layer that is the identity puts it out.
    """
    n_in, _, bias = problem.layout.last_layer
    layer = [torch.eye(n_in).flatten(), *[torch.zeros(n_in)] * bias]
    inputs = problem.model(torch.cat([theta[: -_size(problem)], *(part.to(theta) for part in layer)]), x, n_in)
    return torch.cat([inputs, *[torch.ones_like(inputs[:, :1])] * bias], 1)
