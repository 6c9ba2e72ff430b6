"""Laplace's approximation against closed forms and derivatives by other means."""

from functools import partial
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import nn

from bdl.errors import InputError
from bdl.methods.laplace import Laplace
from bdl.methods.last_layer_laplace import LastLayerLaplace
from bdl.models.likelihoods import Bernoulli, Categorical, GaussianLikelihood
from bdl.models.modules import Module, NetworkModule
from bdl.models.networks import LinearModel, Mlp, Unit
from bdl.models.priors import GaussianPrior
from bdl.models.problem import Problem, full_batch, log_joint

from .targets import doubles

RNG = np.random.default_rng(0)
ROWS, DIM = 80, 3
X = torch.from_numpy(RNG.standard_normal((ROWS, DIM)) + 0.8 * RNG.standard_normal((ROWS, 1)))
Y = torch.from_numpy(
    (RNG.random(ROWS) < 1 / (1 + np.exp(-X.numpy() @ [1, -2, 0.5]))).astype(float)
)
HYPER = doubles(prior_precision=0.3)


@pytest.mark.parametrize(
    ("problem", "y"),
    [
        (Problem(LinearModel(), Bernoulli(), DIM, prior=GaussianPrior(1e-5)), Y),
        (Problem(LinearModel(), Categorical(), DIM, 3), Y + (X[:, 0] > 1)),
        (Problem(Mlp((2,), "tanh"), Bernoulli(), DIM), Y),
    ],
    ids=["logistic", "softmax", "network"],
)
def test_it_is_the_mode_and_the_curvature_there(problem, y):
    found = Laplace().fit(problem, X, y, HYPER, seed=3)
    density = partial(log_joint, problem=problem, batch=full_batch(X, y), hyper=HYPER)

    def height(theta):
        return density(theta.unsqueeze(0)).squeeze(0)

    gradient, hessian = (
        torch.func.grad(height)(found.mean()),
        torch.func.hessian(height)(found.mean()),
    )
    deviations = found.variance().sqrt()
    assert float((gradient * deviations).abs().max()) < 1e-9
    product = -hessian @ found.covariance()
    torch.testing.assert_close(product, torch.eye(problem.dim).double(), rtol=0, atol=1e-8)


def test_a_network_starts_where_its_seed_says():
    """Modes of a network are many; units may be permuted, and signs changed."""
    problem = Problem(Mlp((2,), "tanh"), Bernoulli(), DIM)
    first, again, other = (Laplace().fit(problem, X, Y, HYPER, seed).mean() for seed in (3, 3, 4))
    assert torch.equal(first, again)
    assert not torch.allclose(first, other)


NOISY = HYPER | doubles(noise_precision=1.7)
CLASSES = Y + (X[:, 0] > 1)
NETWORKS = [
    (Mlp((3,), "tanh"), GaussianLikelihood(), 1, X[:, 0].sin()),
    (Mlp((3, 2), "relu"), Categorical(), 3, CLASSES),
    (LinearModel(bias=False), Categorical(), 3, CLASSES),
    (LinearModel(), Bernoulli(), 1, Y),
]


def gauss_newton(problem, theta, y):
    """Sum J^T Lambda J row by row, Lambda being minus the Hessian of the log-likelihood by the outputs."""
    total = NOISY["prior_precision"] * torch.eye(problem.dim).double()
    for row, target in zip(X, y, strict=True):
        one, target = row.unsqueeze(0), target.unsqueeze(0)
        J = torch.autograd.functional.jacobian(
            lambda own, one=one: problem.model(own, one, problem.d_out)[0], theta
        )
        unit = torch.ones(()).double()

        def value(f):
            return problem.likelihood.log_prob(f.unsqueeze(0), target, NOISY, unit).squeeze(0)  # noqa: B023

        f = problem.model(theta, one, problem.d_out)[0]
        total += J.T @ -torch.autograd.functional.hessian(value, f) @ J
    return total


@pytest.mark.parametrize(("model", "likelihood", "d_out", "y"), NETWORKS)
def test_the_gauss_newton_matrix_is_that_of_jacobians_row_by_row(model, likelihood, d_out, y):
    problem = Problem(model, likelihood, DIM, d_out)
    found = Laplace(curvature="ggn").fit(problem, X, y, NOISY)
    product = gauss_newton(problem, found.mean(), y) @ found.covariance()
    torch.testing.assert_close(product, torch.eye(problem.dim).double(), rtol=0, atol=1e-9)


def sequential(model, theta, d_out):
    """The network of torch that an `Mlp` is, with these parameters."""
    layers = []
    for n_in, n_out in pairwise(model.widths(DIM, d_out)):
        layers += [nn.Linear(n_in, n_out), nn.Tanh() if model.activation == "tanh" else nn.ReLU()]
    net = nn.Sequential(*layers[:-1]).double()
    nn.utils.vector_to_parameters(theta, net.parameters())
    return net


@pytest.mark.parametrize(("model", "likelihood", "d_out", "y"), NETWORKS[:2])
def test_kronecker_factors_are_those_of_autograd(model, likelihood, d_out, y):
    """Inputs and errors of each layer from hooks of torch, one row and one column of the root at a time."""
    problem = Problem(model, likelihood, DIM, d_out)
    found = Laplace(curvature="kronecker").fit(problem, X, y, NOISY)
    net = sequential(model, found.mean(), d_out)
    linear = [part for part in net if isinstance(part, nn.Linear)]
    kept = {}
    for part in linear:
        part.register_forward_hook(
            lambda part, given, output: kept.update({part: (given[0][0], output)})
        )
    outer, inner = [0] * len(linear), [0] * len(linear)
    for row in X:
        f = net(row.unsqueeze(0))
        root = likelihood.root_fisher(f.detach(), NOISY, torch.ones(()).double())[0]
        for i, part in enumerate(linear):
            a, output = kept[part]
            inner[i] = inner[i] + torch.outer(a, a).detach()
            for column in root.T:
                (e,) = torch.autograd.grad(f[0] @ column, output, retain_graph=True)
                outer[i] = outer[i] + e.T @ e
    blocks = [
        own for A, B in zip(inner, outer, strict=True) for own in (torch.kron(B, A / ROWS), B)
    ]
    H = torch.block_diag(*blocks) + 0.3 * torch.eye(problem.dim).double()
    torch.testing.assert_close(
        H @ found.covariance(), torch.eye(problem.dim).double(), rtol=0, atol=1e-9
    )


@pytest.mark.parametrize("curvature", ["ggn", "kronecker"])
def test_a_trained_network_has_the_approximation_of_the_same_mlp_at_its_weights(curvature):
    """Its weights are float32."""
    model, likelihood, d_out, y = NETWORKS[1]
    expected = Laplace(curvature=curvature).fit(
        Problem(model, likelihood, DIM, d_out), X, y, NOISY
    )
    given = Problem(
        NetworkModule(network=sequential(model, expected.mean(), d_out)), likelihood, DIM, d_out
    )
    found = Laplace(curvature=curvature, climb=False).fit(given, X, y, NOISY)
    assert torch.equal(found.mean(), expected.mean().float().double())
    torch.testing.assert_close(found.covariance(), expected.covariance(), rtol=1e-4, atol=1e-5)


def test_the_climb_from_a_trained_network_stays_there_and_has_the_gauss_newton_matrix():
    model, likelihood, d_out, y = NETWORKS[0]
    mlp = Problem(model, likelihood, DIM, d_out)
    mode = Laplace().fit(mlp, X, y, NOISY, seed=1).mean()
    given = Problem(NetworkModule(network=sequential(model, mode, d_out)), likelihood, DIM, d_out)
    found = Laplace().fit(given, X, y, NOISY, seed=2)
    torch.testing.assert_close(found.mean(), mode, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(
        torch.linalg.inv(found.covariance()), gauss_newton(mlp, mode, y), rtol=1e-4, atol=1e-3
    )
    hessian = Laplace(curvature="hessian").fit(given, X, y, NOISY, seed=2)
    torch.testing.assert_close(hessian.mean(), mode, rtol=1e-8, atol=1e-8)


PRELU = NetworkModule(network=nn.Sequential(nn.Linear(DIM, 2), nn.PReLU(), nn.Linear(2, 1)))
SOME_BIASES = NetworkModule(
    network=nn.Sequential(nn.Linear(DIM, 2, bias=False), nn.Tanh(), nn.Linear(2, 1))
)
DENSE = NetworkModule(network=nn.Linear(DIM, 1))
BY_POSITION = NetworkModule(
    network=nn.Sequential(
        nn.Unflatten(1, (DIM, 1)), nn.Linear(1, 2), nn.Flatten(), nn.Linear(2 * DIM, 1)
    )
)


@pytest.mark.parametrize(
    ("settings", "model", "x", "prior", "message"),
    [
        ({}, LinearModel(), X / 0, 0.3, "is not finite"),
        (
            {"curvature": "kronecker"},
            PRELU,
            X,
            0.3,
            "not all parameters are those of dense layers, each used once",
        ),
        (
            {"curvature": "kronecker"},
            BY_POSITION,
            X,
            0.3,
            "inputs of a dense layer have several axes a row: use curvature: ggn",
        ),
        (
            {"curvature": "kronecker"},
            SOME_BIASES,
            X,
            0.3,
            "takes biases in all layers or in none, and this model has them in some",
        ),
        (
            {"climb": False},
            DENSE,
            0 * X,
            0.0,
            "the ggn curvature is not definite: check the data, or raise prior_pre",
        ),
    ],
)
def test_what_has_no_approximation_is_refused(settings, model, x, prior, message):
    with pytest.raises(InputError, match=message) as caught:
        Laplace(**settings).fit(
            Problem(model, GaussianLikelihood(), DIM), x, Y, NOISY | doubles(prior_precision=prior)
        )
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("curvature", "structure"), [("ggn", "full"), ("kronecker", "kron")])
def test_covariance_and_linearised_predictive_are_those_of_laplace_torch(curvature, structure):
    """Of a network with three classes; theirs is float32."""
    library = pytest.importorskip("laplace", reason="laplace-torch is not installed")
    model, likelihood, d_out, y = NETWORKS[1]
    problem = Problem(model, likelihood, DIM, d_out)
    q = Laplace(curvature=curvature).fit(problem, X, y, NOISY)
    rows = torch.utils.data.TensorDataset(X.float(), y.long())
    theirs = library.Laplace(
        sequential(model, q.mean(), d_out).float(),
        "classification",
        subset_of_weights="all",
        hessian_structure=structure,
        prior_precision=0.3,
    )
    theirs.fit(torch.utils.data.DataLoader(rows, batch_size=ROWS))
    precision = (
        theirs.posterior_precision
        if structure == "full"
        else theirs.posterior_precision.to_matrix()
    )
    covariance = torch.linalg.inv(precision.double())
    torch.testing.assert_close(q.covariance(), covariance, rtol=0, atol=1e-4)
    mean, variance = theirs._glm_predictive_distribution(X[:5].float())
    points = problem.dim**0.5 * torch.eye(
        problem.dim, dtype=torch.float64
    )  # noise of mean 0 and covariance I
    theta = q.sample(torch.cat([points, -points]))
    f = torch.func.vmap(lambda one: problem.predict_linearised(q.mean(), one, X[:5], {}))(theta)
    torch.testing.assert_close(f.mean(0), mean.double(), rtol=1e-5, atol=1e-5)
    centred = f - f.mean(0)
    spread = torch.einsum("snc,snd->ncd", centred, centred) / len(f)
    torch.testing.assert_close(spread, variance.detach().double(), rtol=1e-4, atol=1e-5)


def test_a_network_that_exists_cannot_get_other_outputs():
    problem = Problem(NetworkModule(network=torch.nn.Linear(2, 1)), GaussianLikelihood(), 2)
    with pytest.raises(InputError, match="in place of the module itself"):
        LastLayerLaplace().check(problem)


def test_outputs_that_are_not_linear_in_the_last_layer_are_refused():
    problem = Problem(Unit("tanh"), GaussianLikelihood(), 2)
    with pytest.raises(InputError, match="outputs of the model 'unit' are not linear"):
        LastLayerLaplace().check(problem)


ENDS = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, inputs, outputs, end):
        super().__init__()
        self.end = end
        self.hidden = nn.Linear(inputs, 3)
        self.skip = nn.Linear(inputs, outputs if end == "wide" else 1)
        self.last = nn.Linear(3, outputs)

    def forward(self, x):
        skip = self.skip(x)
        f = self.last(torch.tanh(self.hidden(x)))
        ends = {"last": f, "tanh": torch.tanh(f), "relu": torch.relu(f), "skip": f + skip}
        ends |= {"wide": f + skip, "scaled": f / 8, "double": f.double()}
        return ends[self.end]
"""


@pytest.mark.parametrize("d_out", [1, 2])
def test_a_model_that_does_more_after_its_last_layer_is_refused(tmp_path, d_out):
    (tmp_path / "ends.py").write_text(ENDS, "utf-8")
    for end in ("last", "double", "tanh", "relu", "skip", "wide", "scaled"):
        model = Module(f"{tmp_path / 'ends.py'}:Net", {"end": end})
        problem = Problem(model, GaussianLikelihood(), 2, d_out)
        if end in ("last", "double"):
            LastLayerLaplace().check(problem)
            continue
        reason = "outputs of the model are not those of its last layer"
        if end == "wide":
            reason = "layers of the model before the last one depend on"
        with pytest.raises(InputError, match=reason):
            LastLayerLaplace().check(problem)
