"""What every registered family must do.

A new one needs a line in `conftest.build` and is tested here.
"""

import inspect

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.func import vmap

from bdl.errors import InputError
from bdl.posteriors import FAMILIES, GaussianPosterior, Posterior, from_tensors, to_tensors
from bdl.posteriors.tensors import as_type

from .conftest import GAUSSIANS, build, normals, stack

NO_DENSITY = {"empirical", "last-layer", "point", "scaled", "weighted"}
NO_ENTROPY = {*NO_DENSITY, "mixture"}
VERBS = {
    "mean": lambda q, noise: q.mean(),
    "variance": lambda q, noise: q.variance(),
    "covariance": lambda q, noise: q.covariance(),
    "sample": lambda q, noise: q.sample(noise),
    "log_prob": lambda q, noise: q.log_prob(q.sample(noise)),
    "entropy": lambda q, noise: q.entropy(),
    "log_det": lambda q, noise: q.log_det(),
    "whiten": lambda q, noise: q.whiten(q.sample(noise)),
    "precision_diagonal": lambda q, noise: q.precision_diagonal(),
}


@pytest.fixture(params=FAMILIES.names())
def name(request):
    return request.param


def verbs(name):
    """Those that a family has."""
    density = ("log_prob",) * (name not in NO_DENSITY) + ("entropy",) * (name not in NO_ENTROPY)
    gaussian = ("log_det", "whiten", "precision_diagonal") if name in GAUSSIANS else ()
    return {
        verb: VERBS[verb]
        for verb in ("mean", "variance", "covariance", "sample", *density, *gaussian)
    }


def test_tensors_and_back(name):
    q = build(name)
    assert q.check() is q
    assert isinstance(q, GaussianPosterior) == (name in GAUSSIANS)
    family, tensors = to_tensors(q)
    again = from_tensors(family, tensors)
    assert (family, type(again)) == (name, type(q))
    assert all(map(torch.equal, again, q))


def test_what_no_contract_documents_is_documented(name):
    kind = FAMILIES.get(name)
    assert kind.__doc__
    contract = {**vars(Posterior), **vars(GaussianPosterior)}
    for member in dir(kind):
        if not member.startswith("_") and member not in {
            *contract,
            *kind._fields,
            "count",
            "index",
            "version",
        }:
            assert inspect.getdoc(getattr(kind, member)), f"{kind.__name__}.{member}"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(), (3, 2)])
def test_shapes_and_type(name, dtype, shape):
    q = as_type(build(name), dtype)
    noise = normals(*shape, q.noise_dim).to(dtype)
    expected = {
        "mean": (6,),
        "variance": (6,),
        "covariance": (6, 6),
        "sample": (*shape, 6),
        "log_prob": shape,
        "whiten": (*shape, q.noise_dim),
        "precision_diagonal": (6,),
    }
    assert q.dim == 6
    for verb, function in verbs(name).items():
        value = function(q, noise)
        assert (value.shape, value.dtype) == (expected.get(verb, ()), dtype), verb


def test_many_at_once_equal_a_loop(name):
    posteriors = [build(name, seed=seed) for seed in range(4)]
    together, noise = stack(posteriors), normals(4, 3, posteriors[0].noise_dim)
    for function in verbs(name).values():
        looped = torch.stack([function(q, row) for q, row in zip(posteriors, noise, strict=True)])
        torch.testing.assert_close(vmap(function)(together, noise), looped, rtol=1e-12, atol=1e-13)
    mapped = vmap(lambda q: q._replace(**{q._fields[0]: q[0] + 1}))(together)
    assert type(mapped) is type(posteriors[0])
    torch.testing.assert_close(mapped[0], torch.stack([q[0] + 1 for q in posteriors]))


def test_samples_have_the_declared_moments(name):
    """Within five standard errors, estimated from a hundred batches."""
    q = build(name)
    draws = q.sample(normals(100, 1000, q.noise_dim, seed=3))
    means, deltas = draws.mean(1), draws - q.mean()
    for found, expected in (
        (means, q.mean()),
        (deltas.mT @ deltas / draws.shape[1], q.covariance()),
    ):
        assert ((found.mean(0) - expected).abs() <= 5 * found.std(0) / 10 + 1e-12).all()
    torch.testing.assert_close(q.variance(), q.covariance().diagonal(), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", sorted({*FAMILIES.names()} - NO_ENTROPY))
def test_entropy_is_minus_the_expected_log_density(name):
    q = build(name)
    log_q = q.log_prob(q.sample(normals(50_000, q.noise_dim, seed=4)))
    assert abs(q.entropy() + log_q.mean()) < 4.5 * log_q.std() / len(log_q) ** 0.5


@pytest.mark.parametrize("name", sorted(NO_ENTROPY))
def test_what_has_no_density_says_so(name):
    q = build(name)
    verbs = [q.entropy] if name == "mixture" else [q.entropy, lambda: q.log_prob(q.mean())]
    for verb in verbs:
        with pytest.raises(
            InputError, match=r"no (closed )?(density|entropy): leave out metrics that need one"
        ):
            verb()


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", GAUSSIANS)
def test_type_and_device_are_kept(name, dtype, device):
    """Fake tensors refuse to mix devices, and need none: they carry shapes only."""
    with FakeTensorMode():
        q = type(build(name))(
            *(torch.empty(tensor.shape, dtype=dtype, device=device) for tensor in build(name))
        )
        noise = torch.empty(q.noise_dim, dtype=dtype, device=device)
        results = [function(q, noise) for function in verbs(name).values()] + [q.trace_solve(q)]
    assert {(result.dtype, result.device.type) for result in results} == {(dtype, device)}


def test_compiled_without_a_break(name):
    """A family is made and used within programs of the engine, which are compiled."""

    def moved(q, noise):
        return type(q)(*q)._replace(**{q._fields[0]: 2 * q[0]}).sample(noise)

    q = build(name)
    noise = normals(2, q.noise_dim)
    torch.compiler.reset()  # which allows few variants of one function
    compiled = torch.compile(moved, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(q, noise), moved(q, noise))
