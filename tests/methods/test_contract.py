"""What every registered method must do; a new method is tested here without a new line.

Only a hyper-parameter with a new name needs its usual value in HYPER.
"""

import dataclasses
import inspect
from functools import partial

import pytest
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map

from bdl.errors import InputError
from bdl.methods import METHODS, base
from bdl.methods.base import ExternalMethod, MinibatchMethod, StreamMethod
from bdl.models.likelihoods import Bernoulli, Categorical, GaussianLikelihood
from bdl.models.modules import Module, NetworkModule
from bdl.models.networks import LinearModel, Mlp
from bdl.models.priors import GaussianPrior, HorseshoePrior, StudentTPrior
from bdl.models.problem import Problem
from bdl.posteriors import Empirical, LastLayer, Point
from bdl.training.traced import TracedFunction

from .targets import advance, assert_same, fit, linear_gaussian, normals, occasions, repeat

HYPER = {"learning_rate": 0.1, "dropout_rate": 0.01, "kl_weight": 1.0}
"""A value with which each method should train on standardised data."""
SETTINGS = {
    "vifa-two-stage": {"gradients_per_update": 1, "mean_epochs": 0, "decay": 1.0},
    "last-layer-laplace": {"descent_epochs": 10_000},
}
"""What methods need that count epochs: here each update is one, far into the fit."""
DIRECT = [
    name for name in METHODS.names() if hasattr(METHODS.get(name), "fit") and name != "teacher"
]
"""Methods without minibatches that learn; the teacher has data sets of its own."""


class Cubic:
    """A model that has parameters but no layers."""


class Doubled(StudentTPrior):
    """A prior over scales and normals, which has no precision and does not say which scales are whose."""

    def latent_dim(self, layout):
        return 2 * layout.dim


LINEAR, BIASED = (
    Problem(LinearModel(), GaussianLikelihood(), 2),
    Problem(LinearModel(), GaussianLikelihood(), 2, prior=GaussianPrior(0.1)),
)
NETWORK, ODD = (
    Problem(Mlp((2,)), GaussianLikelihood(), 2),
    Problem(Cubic(), GaussianLikelihood(), 2),
)
LABELS, CLASSES = (
    Problem(LinearModel(), Bernoulli(), 2),
    Problem(LinearModel(), Categorical(), 2, 3),
)
GIVEN = Problem(NetworkModule(network=nn.Linear(2, 1)), GaussianLikelihood(), 2)
NORMALISED = Problem(Module("torch.nn:Linear", batch_norm="recompute"), GaussianLikelihood(), 2)
UNFIT = [
    ("vifa", {"latent_dim": 4}, LINEAR, "latent_dim 4 exceeds the 3 parameters"),
    ("vifa-two-stage", {"latent_dim": 4}, LINEAR, "latent_dim 4 exceeds the 3 parameters"),
    ("fa-optimum", {"latent_dim": 4}, LINEAR, "latent_dim 4 exceeds the 3 parameters"),
    ("fa-elbo", {"latent_dim": 4}, LINEAR, "latent_dim 4 exceeds the 3 parameters"),
    ("slang", {"rank": 4}, LINEAR, "rank 4 exceeds the 3 parameters"),
    (
        "csgmcmc",
        {"warmup_epochs": 50},
        LINEAR,
        "warmup_epochs 50 leave no draws in cycle_epochs: lower them",
    ),
    ("multi-swag", {"rank": 4}, LINEAR, "rank 4 exceeds the 3 parameters"),
    ("swag", {"rank": 4}, LINEAR, "rank 4 exceeds the 3 parameters"),
    (
        "iterates-fa",
        {"latent_dim": 3},
        LINEAR,
        "latent_dim 3 does not suit 3 dimensions: give one of 1 to 2",
    ),
    (
        "sgd-iterates",
        {},
        Problem(LinearModel(), GaussianLikelihood(), 2000),
        "2001 parameters are too many .* use swag",
    ),
    ("conjugate", {}, NETWORK, "no closed form"),
    ("conjugate", {}, LABELS, "no closed form"),
    ("fa-optimum", {}, NETWORK, "no closed form"),
    ("fa-elbo", {}, NETWORK, "needs a linear model with one output"),
    ("exact-gaussian", {}, NETWORK, "^exact-gaussian needs a linear model with one output"),
    ("exact-gaussian", {}, CLASSES, "^exact-gaussian needs a linear model with one output"),
    (
        "natural-gradient",
        {"curvature": "hessian"},
        NETWORK,
        "needs a linear model with one output: use curvature fish",
    ),
    ("importance-sampling", {"proposal": "variational"}, NETWORK, "linear model with one output"),
    ("moment-matching", {"proposal": "variational"}, NETWORK, "linear model with one output"),
    (
        "laplace",
        {},
        Problem(Mlp((50, 50)), Bernoulli(), 3),
        "^laplace forms the Hessian of 2801 parameters: use a mo",
    ),
    (
        "laplace",
        {},
        Problem(LinearModel(), GaussianLikelihood(), 2, prior=Doubled()),
        "^laplace needs a prior on the parameters them",
    ),
    (
        "laplace",
        {"climb": False, "curvature": "ggn"},
        NETWORK,
        "climb: false is for a trained network",
    ),
    (
        "laplace",
        {"climb": False, "curvature": "hessian"},
        GIVEN,
        "climb: false is for a trained network",
    ),
    ("laplace", {"curvature": "ggn"}, NORMALISED, "^under batch normalisation no row"),
    (
        "bbb",
        {"degrees": 3},
        Problem(LinearModel(), GaussianLikelihood(), 2, prior=HorseshoePrior()),
        "are latent, bbb needs a Gaus",
    ),
    (
        "bbb",
        {},
        Problem(LinearModel(), GaussianLikelihood(), 2, prior=Doubled()),
        "does not know the latent variables of Doubled",
    ),
    ("noisy-kfac", {}, ODD, "model Cubic is not made of dense layers: use linear or mlp"),
    (
        "noisy-kfac",
        {"statistics_every": 30},
        NETWORK,
        "inverses_every 100 is no multiple of statistics_every 30: in",
    ),
    (
        "noisy-kfac",
        {},
        BIASED,
        "needs one prior precision for all parameters: leave out bias_precision",
    ),
    ("hierarchical-vadam", {}, BIASED, "leave the prior out"),
    (
        "hierarchical-vadam",
        {"scales": "ard", "global_scale": 0.5},
        LINEAR,
        "global_scale is of the horseshoe",
    ),
    ("mc-dropout", {}, ODD, "model Cubic is not made of dense layers: use linear or mlp"),
    (
        "last-layer-laplace",
        {},
        Problem(LinearModel(), Categorical(), 1001, 10),
        "10020 parameters",
    ),
    ("last-layer-laplace", {}, ODD, "Cubic is not made of dense layers"),
    (
        "teacher",
        {"data": "sparse_network"},
        Problem(LinearModel(), GaussianLikelihood(), 200),
        "has the layers 200-200-200-1: give",
    ),
    (
        "teacher",
        {"data": "sparse_network"},
        Problem(Mlp((200, 9)), GaussianLikelihood(), 200),
        "has the layers 200-200-200-1: ",
    ),
]
"""Settings that do not suit a problem."""
FIT = [
    ("vifa", {"latent_dim": 3}, LINEAR),
    ("iterates-fa", {"latent_dim": 2}, LINEAR),
    ("sgd-iterates", {}, Problem(LinearModel(), GaussianLikelihood(), 1999)),
    ("noisy-kfac", {}, NETWORK),
    ("natural-gradient", {}, NETWORK),
    ("importance-sampling", {"proposal": "laplace"}, NETWORK),
    ("importance-sampling", {"proposal": "prior"}, NETWORK),
]
"""The last that do."""


@pytest.fixture(params=[name for name in METHODS.names() if hasattr(METHODS.get(name), "step")])
def method(request):
    return METHODS.get(request.param)(**SETTINGS.get(request.param, {}))


@pytest.mark.parametrize(("name", "settings", "problem", "message"), UNFIT)
def test_what_does_not_fit_is_refused(name, settings, problem, message):
    with pytest.raises(InputError, match=message) as error:
        METHODS.get(name)(**settings).check(problem)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(("name", "settings", "problem"), FIT)
def test_what_just_fits_is_taken(name, settings, problem):
    METHODS.get(name)(**settings).check(problem)


@pytest.mark.parametrize("name", METHODS.names())
def test_every_method_is_of_one_kind_and_documented(name):
    kind = METHODS.get(name)
    assert METHODS.missing_members(kind) is None
    kinds = {"minibatches": MinibatchMethod, "observations": StreamMethod, "rows": ExternalMethod}
    assert [issubclass(kind, one) for one in kinds.values()].count(True) == 1
    assert issubclass(kind, kinds[kind.source])
    assert hash(kind()) == hash(dataclasses.replace(kind()))
    bases = (base.Method, *kinds.values(), base.Direct)
    contract = {member for own in bases for member in vars(own)}
    settings = {field.name for field in dataclasses.fields(kind)}
    for member in dir(kind):
        if not member.startswith("_") and member not in {*contract, *settings, "version"}:
            assert inspect.getdoc(getattr(kind, member)), f"{kind.__name__}.{member}"


def test_what_a_method_lacks_is_named(tmp_path):
    class Unfinished(MinibatchMethod):
        def init(self, problem, noise):
            return noise["theta"]

    assert (
        METHODS.missing_members(Unfinished)
        == "posterior, step; see bdl.methods.base:MinibatchMethod"
    )
    own = tmp_path / "own.py"
    own.write_text(
        "from dataclasses import dataclass\n\n\n@dataclass(frozen=True)\nclass Own:\n    size: int = 1\n"
    )
    with pytest.raises(
        InputError,
        match=r"own\.py:Own' lacks a base class: derive it from bdl\.methods\.base:Minibatch",
    ):
        METHODS.build(f"{own}:Own", {})


@pytest.mark.parametrize(
    ("name", "settings", "hyper"),
    [
        ("sgd-iterates", {}, ("learning_rate",)),
        ("sgd-iterates", {"prior_decay": False}, ("learning_rate", "weight_decay")),
        ("sgd-iterates", {"separate_warmup": True}, ("learning_rate", "warmup_learning_rate")),
        ("slang", {}, ("learning_rate",)),
        ("slang-online-eig", {"initial_precision": None}, ("learning_rate", "initial_precision")),
        ("noisy-kfac", {"damping": None}, ("learning_rate", "kl_weight", "damping")),
    ],
)
def test_hyper_parameters_of_settings(name, settings, hyper):
    assert METHODS.get(name)(**settings).hyper == hyper


def test_limits_of_hyper_parameters():
    assert METHODS.get("natural-gradient")(lr_factors=(1, 2)).hyper_below == {"learning_rate": 0.5}
    assert METHODS.get("slang")(lr_factors=(1, 4)).hyper_below == {"learning_rate": 0.25}
    assert METHODS.get("slang")().hyper_above == {"initial_precision": 0}
    assert METHODS.get("noisy-adam")().hyper_above == {"kl_weight": 0}


@pytest.mark.parametrize(
    ("name", "epochs"), [("adam", 0), ("swag", 500), ("sgld", 50), ("last-layer-laplace", 1)]
)
def test_epochs_from_which_nothing_is_kept(name, epochs):
    assert METHODS.get(name)().idle_epochs == epochs


@pytest.mark.parametrize("bias_precision", [None, 0.01])
@pytest.mark.parametrize("name", DIRECT)
def test_direct_methods_find_the_posterior(name, bias_precision):
    method, target = METHODS.get(name)(), linear_gaussian(bias_precision=bias_precision)
    exact = target.posterior
    method.check(target.problem)
    first, again = fit(method, target), fit(method, target)
    assert torch.equal(first.check().mean(), again.mean())
    assert torch.equal(first.covariance(), again.covariance())
    if name in ("conjugate", "exact-gaussian", "laplace"):
        assert_same(first, exact)
    elif (
        not method.deterministic
    ):  # at least half of its 10,000 draws count, for each of three parameters
        assert exact.whiten(first.mean() - exact.mean()).abs().max() < 4.5 * 5000**-0.5
        products = exact.whiten(exact.whiten(first.covariance()).mT)
        assert (products - torch.eye(3)).abs().max() < 4.5 * 2500**-0.5
    # a covariance of one factor is another; the mean of one of them comes from a numerical search
    else:
        torch.testing.assert_close(
            first.mean(), exact.mean(), rtol=1e-6 if name == "fa-elbo" else 1e-10, atol=1e-12
        )


def test_a_direct_method_yields_once():
    target = linear_gaussian()
    ((updates, posterior),) = METHODS.get("conjugate")().fits(
        target.problem, *target.data[:2], target.hyper, 0
    )
    assert updates == 0
    assert posterior.dim == 3


def at(tree, index):
    """Choose one trial."""
    return tree_map(lambda leaf: leaf[index], tree)


class Case:
    """A method on a linear-Gaussian target, for several trials that differ in noise and hyper-parameters."""

    def __init__(self, method, n_trials: int, dtype: torch.dtype = torch.float64) -> None:
        self.method, self.generator, self.dtype = method, torch.Generator().manual_seed(0), dtype
        self.n_trials = n_trials
        target = linear_gaussian(dtype=dtype)
        self.problem, self.exact = target.problem, target.posterior
        whole = repeat(target.data, method.batches_per_step)
        self.batches = tree_map(lambda leaf: leaf.expand(n_trials, *leaf.shape).clone(), whole)
        own = {name: torch.tensor(HYPER[name], dtype=dtype) for name in method.hyper}
        self.hyper = {name: value.repeat(n_trials) for name, value in (target.hyper | own).items()}

    def noise(self, shapes) -> dict[str, Tensor]:
        """Draw standard normals for all trials."""
        batched = {name: (self.n_trials, *shape) for name, shape in shapes.items()}
        return normals(batched, self.generator, self.dtype)

    def init(self):
        """Initial states of all trials."""
        noise = self.noise(self.method.init_noise(self.problem))
        return torch.func.vmap(lambda one: self.method.init(self.problem, one))(noise)

    def step_one(self, state, batches, hyper, noise, update=1000):
        """One update of one trial, and what is due after it.

        Each is an epoch, the first is far into the fit.
        """
        return advance(self.method, state, update, 1, batches, hyper, noise, self.problem)

    def run(self, state, n_steps: int, hyper=None):
        """States after each of several steps of all trials.

        Many are made by their traces, as the engine does.
        """
        hyper, steps, path = self.hyper if hyper is None else hyper, {}, []
        for update in range(1, n_steps + 1):
            noise, names = (
                self.noise(self.method.step_noise(self.problem)),
                occasions(self.method, update, 1),
            )
            if names not in steps:
                steps[names] = TracedFunction(
                    torch.func.vmap(partial(self.step_one, update=update))
                )
            state = steps[names](state, self.batches, hyper, noise)
            path.append(state)
        return path


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_states_and_posteriors_keep_shapes_and_type(method, dtype):
    """A step gives a state like the one it got, so that it can be iterated, compiled and stored."""
    case = Case(method, 1, dtype)
    method.check(case.problem)
    before = case.init()
    after = case.run(before, 3)[-1]
    (leaves, structure), (new_leaves, new_structure) = (
        tree_flatten(at(before, 0)),
        tree_flatten(at(after, 0)),
    )
    assert new_structure == structure
    assert [(leaf.shape, leaf.dtype) for leaf in new_leaves] == [
        (leaf.shape, leaf.dtype) for leaf in leaves
    ]
    assert {leaf.dtype for leaf in leaves if leaf.ndim} == {dtype}

    posterior, dim = method.posterior(at(after, 0)).check(), case.problem.dim
    samples = posterior.sample(
        torch.randn(50, posterior.noise_dim, generator=case.generator, dtype=dtype)
    )
    values = [
        (posterior.mean(), (dim,)),
        (posterior.covariance(), (dim, dim)),
        (samples, (50, dim)),
    ]
    if not isinstance(posterior, Point | Empirical | LastLayer):  # which have no density
        values.append((posterior.log_prob(samples), (50,)))
    for value, shape in values:
        assert (value.shape, value.dtype) == (shape, dtype)
        assert value.isfinite().all()


def test_is_pure(method):
    """Inputs stay as they were, the same inputs give the same bits, and the global generator is not used."""
    case = Case(method, 1)
    problem = case.problem
    start, noise = (
        at(case.noise(method.init_noise(problem)), 0),
        case.noise(method.step_noise(problem)),
    )
    inputs = (start, *at((case.batches, case.hyper, noise), 0))
    untouched, global_state = tree_map(torch.clone, inputs), torch.get_rng_state()

    def run(start, *others):
        state = method.init(problem, start)
        kept = tree_map(torch.clone, state)
        after = case.step_one(state, *others)
        method.posterior(after).mean()
        return (*tree_leaves(state), *tree_leaves(kept), *tree_leaves(after)), (state, kept)

    first, (state, kept) = run(*inputs)
    second, _ = run(*inputs)
    assert all(map(torch.equal, first, second))
    assert all(map(torch.equal, tree_leaves(state), tree_leaves(kept)))
    assert all(map(torch.equal, tree_leaves(inputs), tree_leaves(untouched)))
    assert torch.equal(torch.get_rng_state(), global_state)


def test_vmap_equals_the_loop(method):
    """Five steps of four trials, which differ in their data, their noise and every hyper-parameter."""
    case = Case(method, 4)
    factors = torch.tensor([1.0, 0.5, 2.0, 3.0], dtype=torch.float64)
    case.hyper = {name: factors * value for name, value in case.hyper.items()}
    case.batches = case.batches._replace(
        x=case.batches.x * factors.view(4, *[1] * (case.batches.x.ndim - 1))
    )
    state = case.init()
    singles = [at(state, i) for i in range(4)]
    for _ in range(5):
        noise = case.noise(method.step_noise(case.problem))
        state = torch.func.vmap(case.step_one)(state, case.batches, case.hyper, noise)
        inputs = (case.batches, case.hyper, noise)
        singles = [case.step_one(single, *at(inputs, i)) for i, single in enumerate(singles)]
    for i, single in enumerate(singles):
        torch.testing.assert_close(
            tree_leaves(at(state, i)), tree_leaves(single), rtol=1e-10, atol=1e-12
        )
    means = torch.func.vmap(lambda one: method.posterior(one).mean())(state)
    torch.testing.assert_close(
        means[2], method.posterior(singles[2]).mean(), rtol=1e-10, atol=1e-12
    )


def test_a_diverged_trial_stays_alone(method):
    """With NaN as any one of its hyper-parameters a trial fails, and its neighbours keep every bit."""
    for name in Case(method, 3).hyper:
        healthy, ill = Case(method, 3), Case(method, 3)
        hyper = ill.hyper | {name: ill.hyper[name].index_fill(0, torch.tensor(1), torch.nan)}
        expected = healthy.run(healthy.init(), 3)[-1]
        actual = ill.run(ill.init(), 3, hyper)[-1]
        for one, other in zip(tree_leaves(actual), tree_leaves(expected), strict=True):
            assert torch.equal(one[[0, 2]], other[[0, 2]])
        if name in (*method.hyper, "prior_precision"):
            assert method.posterior(at(actual, 1)).mean().isnan().any()


def test_finds_the_posterior_mean(method):
    """Averaged over 16 trials and the second half of training, within 0.1 posterior standard deviations."""
    if isinstance(method, METHODS.get("hierarchical-vadam")):
        pytest.skip("it learns the prior, and so finds another posterior")
    case = Case(method, 16)
    path = tree_map(lambda *states: torch.cat(states), *case.run(case.init(), 1000)[500:])
    average = torch.func.vmap(lambda one: method.posterior(one).mean())(path).mean(0)
    assert case.exact.whiten(average - case.exact.mean()).norm() < 0.1
