"""Draws from the posterior of a regression by the No-U-Turn sampler: the truth where there is no
closed form.

The model is y_i ~ Bernoulli(sigmoid(x_i theta)), or y_i ~ N(x_i theta, 1/beta), with theta_j ~
N(0, 1/alpha_j); an intercept is a column of ones. It is written with bambi, as in Brownlie (2022),
and sampled by nutpie or by pymc.
"""

import importlib
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from time import perf_counter
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from annotated_types import Ge, Gt, Lt
from numpy.typing import NDArray

from bdl.errors import InputError
from bdl.runtime import one_thread

Sampler = Literal["nutpie", "pymc"]
TERM = "features(row)"


@dataclass(frozen=True, eq=False)
class Regression:
    """Data, likelihood and prior of a linear model.

    Inputs are (n, D), targets (n,): 0 or 1 in logistic regression, which it is if
    `noise_precision` is None, real otherwise; `prior_precision` is that of every parameter, (D,).
    `InputError` if a precision is not positive.
    """

    x: NDArray[np.float64]
    y: NDArray[np.float64]
    prior_precision: NDArray[np.float64]
    noise_precision: float | None = None

    def __post_init__(self) -> None:
        noise = [] if self.noise_precision is None else [("noise_precision", self.noise_precision)]
        for name, value in (
            *(("prior_precision", alpha) for alpha in self.prior_precision),
            *noise,
        ):
            if not 0 < value < np.inf:
                raise InputError(f"{name} must be positive and finite: it is {value}")


@dataclass(frozen=True)
class SamplerSettings:
    """How long to sample, and with what; by default as Brownlie (2022).

    Parameters
    ----------
    draws
        Iterations of each chain that are kept.
    tune
        Iterations of each chain before these, in which the step size is adapted; they are dropped.
    chains
        Number of chains.
    seed
        Gives all chains their randomness.
    target_accept
        Acceptance rate that the warm-up adapts the step size to; nearer to 1, steps are smaller.
    sampler
        None takes nutpie where it is installed, else pymc.
    """

    draws: Annotated[int, Ge(1)] = 10_000
    tune: Annotated[int, Ge(1)] = 1_000
    chains: Annotated[int, Ge(1)] = 4
    seed: Annotated[int, Ge(0)] = 1
    target_accept: Annotated[float, Gt(0), Lt(1)] = 0.9
    sampler: Sampler | None = None

    def choose_sampler(self) -> Sampler:
        """Name the sampler that will run."""
        return self.sampler or ("nutpie" if find_spec("nutpie") else "pymc")


@dataclass(frozen=True)
class Origin:
    """Where draws come from: sampler, seed, warm-up, package versions, and seconds from model to
    last draw.
    """

    sampler: str
    seed: int
    tune: int
    versions: dict[str, str]
    seconds: float


class ChainDraws(NamedTuple):
    """What the sampler gave, C chains of S draws after warm-up."""

    theta: NDArray[np.float64]
    """Parameters, (C, S, D)."""
    diverging: NDArray[np.bool_]
    """Whether the trajectory diverged, (C, S)."""
    energy: NDArray[np.float64]
    """Hamiltonian, (C, S), nats."""
    steps: NDArray[np.int64]
    """Steps of the trajectory, (C, S)."""
    origin: Origin


def sample_regression(regression: Regression, settings: SamplerSettings) -> ChainDraws:
    """Draw from the posterior: the same for the same seed, sampler and versions.

    No process is forked: nutpie runs its chains in threads, pymc one after the other. `InputError`
    if bambi or the sampler is not installed.
    """
    sampler = settings.choose_sampler()
    run, packages = {"nutpie": (_compile_and_sample, ["nutpie"]), "pymc": (_sample_by_pymc, [])}[
        sampler
    ]
    start = perf_counter()
    tree = run(build_model(regression), settings)
    packages += ["bambi", "pymc", "pytensor", "numpy"]
    return convert_tree(
        tree,
        TERM,
        describe_origin(sampler, settings.seed, settings.tune, packages, perf_counter() - start),
    )


def describe_origin(
    sampler: str, seed: int, tune: int, packages: Iterable[str], seconds: float
) -> Origin:
    """Describe where draws come from, with the versions of Python and of some packages."""
    versions = {name: version(name) for name in packages} | {"python": sys.version.split()[0]}
    return Origin(sampler, seed, tune, versions, seconds)


def build_model(regression: Regression) -> Any:
    """Write the model with bambi and give its `pymc.Model`, whose one free variable is `TERM`.

    All columns are one term of the formula, hence one vector instead of D scalar variables (a
    scalar if D is 1).
    """
    bambi, pandas = import_optional("bambi"), import_optional("pandas")
    data = pandas.DataFrame({"y": regression.y, "row": np.arange(len(regression.x))})
    sigma = regression.prior_precision**-0.5
    priors: dict[str, Any] = {
        TERM: bambi.Prior("Normal", mu=0, sigma=sigma if len(sigma) > 1 else sigma[0])
    }
    if regression.noise_precision is not None:
        priors["sigma"] = regression.noise_precision**-0.5
    model = bambi.Model(
        f"y ~ 0 + {TERM}",
        data,
        family=_build_logistic_family() if regression.noise_precision is None else "gaussian",
        priors=priors,
        # the priors as they are: bambi would scale them by the data, and move the inputs
        auto_scale=False,
        center_predictors=False,
        extra_namespace={"features": lambda row: regression.x[np.asarray(row)]},
    )
    model.build()
    return model.backend.model


def _build_logistic_family() -> Any:
    """Bernoulli targets, log p(y | f) = -log(1 + exp((1 - 2 y) f)), exact for every f.

    bambi's own family ``"bernoulli"`` bounds the probability to [2.2e-16, 1 - 2.2e-16]: beyond |f|
    = 36 its likelihood of the other label is flat, and so is its gradient. This one is faster,
    too.
    """
    bambi, pymc, tensor = (
        import_optional("bambi"),
        import_optional("pymc"),
        import_optional("pytensor.tensor"),
    )

    def log_prob(y: Any, f: Any) -> Any:
        return -tensor.softplus((1 - 2 * y) * f)

    def distribution(name: str, logit_p: Any, **options: Any) -> Any:
        return pymc.CustomDist(name, logit_p, logp=log_prob, **options)

    likelihood = bambi.Likelihood(
        "BernoulliLogit", params=["logit_p"], parent="logit_p", dist=distribution
    )
    return bambi.Family("bernoulli-logit", likelihood, "identity")


def convert_tree(tree: Any, name: str, origin: Origin) -> ChainDraws:
    """Convert arviz's `InferenceData` (before 1.0) or `DataTree` (since), in which parameters have
    a name.
    """

    def to_array(group: str, name: str) -> Any:
        return tree[group][name].transpose("chain", "draw", ...).to_numpy()

    theta = to_array("posterior", name)
    return ChainDraws(
        theta.reshape(*theta.shape[:2], -1).astype(np.float64),
        to_array("sample_stats", "diverging").astype(np.bool_),
        to_array("sample_stats", "energy").astype(np.float64),
        to_array("sample_stats", "n_steps").astype(np.int64),
        origin,
    )


def import_optional(name: str, purpose: str = "sampling") -> Any:
    """Import a package of the extra ``mcmc``, or say what needs it and how to install it."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise InputError(
            f"{purpose} needs {name} ({error}): pip install 'bdl-bench[mcmc]'"
        ) from None


def sample_by_nutpie(
    model: Any, draws: int, tune: int, target_accept: float, **options: Any
) -> Any:
    """Sample a compiled model on one thread, since chains are threads already.

    Further options are nutpie's.
    """
    lengths = {"draws": draws, "tune": tune, "target_accept": target_accept}
    with one_thread():
        return import_optional("nutpie").sample(
            model, **lengths, **options, save_warmup=False, progress_bar=False
        )


def _compile_and_sample(model: Any, settings: SamplerSettings) -> Any:
    compiled = import_optional("nutpie").compile_pymc_model(model, var_names=[TERM])
    lengths = settings.draws, settings.tune, settings.target_accept
    return sample_by_nutpie(compiled, *lengths, chains=settings.chains, seed=settings.seed)


def _sample_by_pymc(model: Any, settings: SamplerSettings) -> Any:
    return import_optional("pymc").sample(
        model=model,
        draws=settings.draws,
        tune=settings.tune,
        chains=settings.chains,
        random_seed=settings.seed,
        target_accept=settings.target_accept,
        var_names=[TERM],
        cores=1,  # more would fork, which is not safe with torch loaded
        compile_kwargs={"mode": "NUMBA"},  # as nutpie does: needs no C compiler, and has a BLAS
        compute_convergence_checks=False,
        progressbar=False,
        quiet=True,
    )
