"""Any `torch.nn.Module` as a function of a flat parameter vector, and models as modules, for libraries of those."""

import copy
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache, partial
from itertools import pairwise
from typing import Annotated, Any, ClassVar, Literal

import torch
from annotated_types import Gt
from torch import Tensor, nn
from torch.func import functional_call

from bdl.errors import InputError
from bdl.models.base import Layers
from bdl.models.networks import ACTIVATIONS, LinearModel, Mlp
from bdl.models.problem import Problem
from bdl.models.skeleton import Skeleton, import_factory, make_network, take_apart

ROWS = 128
"""Rows of a minibatch from which statistics are recomputed."""


@dataclass(frozen=True)
class Module:
    """A network that a function makes.

    In training, batch normalisation uses the statistics of the minibatch; predictions use running
    averages of them, which `track` makes. Training changes no statistic of its own accord, so that
    gradients and `vmap` work.

    Parameters
    ----------
    factory
        ``module:function`` or ``path/to/file.py:function``. It is called with the number of inputs
        (or `shape`, if there is one) and that of outputs, and `settings` by name; it gives a
        module that maps (M, inputs) or (M, *shape) to (M, outputs).
    settings
        Further arguments of the function.
    shape
        Shape of one row, such as (channels, height, width); null leaves it flat.
    batch_norm
        Statistics for predictions: ``"running"`` averages of training, or ``"recompute"``, anew
        for every sample of the parameters from the training rows, as SWAG does (Maddox et al.
        2019, section 4.2).

    Notes
    -----
    The parameters are in the order of `named_parameters`, each flattened row by row; those named
    ``bias`` are biases. They may start at weights noise * sqrt(2 / fan_in), fan_in being the size
    of a weight over its first dimension (He et al. 2015), biases 0, and other vectors, such as
    scales of normalisations, as the function leaves them; so do those whose names are in an
    attribute ``pretrained`` of the network.
    """

    version: ClassVar[int] = 2

    factory: str
    settings: dict[str, Any] = field(default_factory=dict)
    shape: tuple[Annotated[int, Gt(0)], ...] | None = None
    batch_norm: Literal["running", "recompute"] = "running"

    def __hash__(self) -> int:
        return hash((self.factory, self._settings, self.shape, self.batch_norm))

    def __reduce__(self) -> tuple[Any, ...]:
        """Leave the network behind when pickled; it is built again."""
        return type(self), (self.factory, self.settings, self.shape, self.batch_norm)

    @property
    def sources(self) -> tuple[str, ...]:
        """Names of the modules, beside this one, whose code decides what it computes."""
        return (import_factory(self.factory).__module__,)

    def dim(self, d_in: int, d_out: int) -> int:
        return sum(self._skeleton(d_in, d_out).sizes)

    def bias_mask(self, d_in: int, d_out: int) -> Tensor:
        return self._skeleton(d_in, d_out).biases

    def initial(self, noise: Tensor, d_in: int, d_out: int) -> Tensor:
        skeleton = self._skeleton(d_in, d_out)
        return noise * skeleton.spread.to(noise) + skeleton.centre.to(noise)

    def __call__(self, theta: Tensor, x: Tensor, d_out: int) -> Tensor:
        skeleton = self._skeleton(x.shape[-1], d_out)
        return functional_call(skeleton.training, skeleton.tensors(theta), (self._rows(x),))

    def buffers(self, d_in: int, d_out: int) -> dict[str, Tensor]:
        """Return the running means and variances of batch normalisations before training.

        None that are recomputed.
        """
        if self.recomputes:
            return {}
        return {
            name: value.clone() for name, value in self._skeleton(d_in, d_out).statistics.items()
        }

    def predict(
        self, theta: Tensor, x: Tensor, d_out: int, buffers: Mapping[str, Tensor]
    ) -> Tensor:
        skeleton = self._skeleton(x.shape[-1], d_out)
        statistics = {name: buffers[name].to(theta.dtype) for name in skeleton.statistics}
        tensors = skeleton.tensors(theta) | statistics
        return functional_call(skeleton.evaluation, tensors, (self._rows(x),))

    def track(
        self, theta: Tensor, x: Tensor, d_out: int, buffers: Mapping[str, Tensor]
    ) -> dict[str, Tensor]:
        """Average the minibatch's statistics into the running ones as `torch.nn.BatchNorm1d` does.

        Under `vmap`, parameters, inputs and statistics have to be mapped alike.
        """
        skeleton = self._skeleton(x.shape[-1], d_out)
        # batch normalisation writes into these copies
        statistics = {
            name: buffers[name].to(theta.dtype, copy=True) for name in skeleton.statistics
        }
        with torch.no_grad():
            functional_call(
                skeleton.tracking, skeleton.tensors(theta) | statistics, (self._rows(x),)
            )
        return {name: value.to(buffers[name].dtype) for name, value in statistics.items()}

    @property
    def recomputes(self) -> bool:
        """Whether predictions need `recomputed` statistics."""
        return self.batch_norm == "recompute"

    def recomputed(self, theta: Tensor, x: Tensor, d_out: int) -> dict[str, Tensor]:
        """Average the statistics of minibatches of training inputs, (n, d_in), under the parameters, for `predict`.

        Minibatches have `ROWS` rows; the rest is left out, if there is a whole one. `theta` may be
        mapped, `x` not.
        """
        skeleton = self._skeleton(x.shape[-1], d_out)
        tensors, total = skeleton.tensors(theta), dict[str, Tensor]()
        parts = torch.split(x, ROWS)[: max(1, len(x) // ROWS)]
        with torch.no_grad():
            for part in parts:
                # written into; mapped wherever the parameters are
                own = {
                    name: 0 * theta[0] + value.to(theta)
                    for name, value in skeleton.statistics.items()
                }
                functional_call(skeleton.averaging, tensors | own, (self._rows(part),))
                total = {
                    name: value / len(parts) + total.get(name, 0) for name, value in own.items()
                }
        return total

    def last_layer(self, d_in: int, d_out: int) -> tuple[int, int, bool]:
        """Return inputs and outputs of the last layer, and whether it has biases.

        `InputError` if it is not dense.
        """
        shapes = self._skeleton(d_in, d_out).shapes
        last = [*shapes][-1].rpartition(".")[0]
        (_, weight), *bias = [
            (name, shape) for name, shape in shapes.items() if name.rpartition(".")[0] == last
        ]
        if len(weight) != 2 or any(shape != weight[:1] for _, shape in bias):
            raise InputError(
                f"factory '{self.factory}': the last layer, {last}, is not dense: use another method"
            )
        return weight[1], weight[0], bool(bias)

    def dense_layers(
        self, theta: Tensor, x: Tensor, d_out: int, error: Callable[[Tensor], Tensor]
    ) -> Layers:
        """Return inputs and errors as `LayeredModel.backpropagate` does, of a network of dense layers; not under vmap.

        `InputError` if it has other parameters, or a layer is used more than once.
        """
        skeleton, seen = self._skeleton(x.shape[-1], d_out), list[tuple[str, Tensor, Tensor]]()
        parts = {
            name: part
            for name, part in skeleton.evaluation.named_modules()
            if isinstance(part, nn.Linear)
        }

        def look(name: str, part: nn.Module, given: tuple[Tensor], output: Tensor) -> None:
            seen.append((name, given[0], output))

        handles = [part.register_forward_hook(partial(look, name)) for name, part in parts.items()]
        try:
            f = self.predict(theta.detach().requires_grad_(), x, d_out, {})
        finally:
            for handle in handles:
                handle.remove()
        names = [*dict.fromkeys(name.rpartition(".")[0] for name in skeleton.shapes)]
        if sorted(name for name, _, _ in seen) != sorted(names):
            raise InputError(
                f"{type(self).__name__}: not all parameters are those of dense layers, each used once"
            )
        errors = torch.autograd.grad(f, [output for _, _, output in seen], error(f.detach()))
        found = {
            name: (given.detach(), own) for (name, given, _), own in zip(seen, errors, strict=True)
        }
        return tuple(found[name] for name in names)

    def widest(self, d_in: int, d_out: int) -> int:
        return self._skeleton(d_in, d_out).widest

    @property
    def _settings(self) -> str:
        return json.dumps(self.settings, sort_keys=True)

    @cached_property
    def _skeletons(self) -> dict[tuple[int, int], Skeleton]:
        """What was built before, where a compiler finds it without a call that it would trace."""
        return {}

    def _skeleton(self, d_in: int, d_out: int) -> Skeleton:
        key = (d_in, d_out)
        if key not in self._skeletons:
            self._skeletons[key] = self._built(d_in, d_out)
        return self._skeletons[key]

    def _built(self, d_in: int, d_out: int) -> Skeleton:
        return _build_shared_skeleton(self.factory, self._settings, self.shape, d_in, d_out)

    def _rows(self, x: Tensor) -> Tensor:
        """Return each row its shape: (M, d_in) -> (M, *shape)."""
        return x if self.shape is None else x.view(*x.shape[:-1], *self.shape)


@lru_cache(maxsize=16)
def _build_shared_skeleton(
    factory: str, settings: str, shape: tuple[int, ...] | None, d_in: int, d_out: int
) -> Skeleton:
    """Build once what equal models share."""
    net = make_network(factory, json.loads(settings), shape, d_in, d_out)
    return take_apart(f"factory '{factory}'", net, (d_in,) if shape is None else shape, d_out)


@dataclass(frozen=True, eq=False)
class NetworkModule(Module):
    """A network at hand, of which a copy is taken; otherwise as `Module`.

    Parameters
    ----------
    network
        The network, mapping (M, inputs) or (M, *shape) to (M, outputs). It is left as it is.
    """

    factory: str = ""
    network: nn.Module = field(kw_only=True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "network", copy.deepcopy(self.network).float().cpu())

    def __hash__(self) -> int:
        return id(self)

    def __reduce__(self) -> tuple[Any, ...]:
        """Keep the network when pickled; what is derived from it is made again."""
        return partial(NetworkModule, shape=self.shape, network=self.network), ()

    @property
    def sources(self) -> tuple[str, ...]:
        """Names of the modules, beside this one, whose code decides what it computes."""
        return (type(self.network).__module__,)

    @property
    def weights(self) -> Tensor:
        """The parameters that the network came with, (D,)."""
        return torch.cat([value.detach().flatten() for value in self.network.parameters()])

    def _built(self, d_in: int, d_out: int) -> Skeleton:
        row = (d_in,) if self.shape is None else self.shape
        return take_apart(
            f"model {type(self.network).__name__}", copy.deepcopy(self.network), row, d_out
        )


def torch_module(problem: Problem, seed: int) -> nn.Module:
    """Build the model of a problem as a module, float32, on the CPU.

    `InputError` if it is none that can be built.

    ``torch.nn.utils.parameters_to_vector(module.parameters())`` is the parameter vector of the
    problem, (D,). Its start has the law that the engine's fits start from.
    """
    network = _make_module(problem)
    noise = torch.randn(problem.dim, generator=torch.Generator().manual_seed(seed))
    nn.utils.vector_to_parameters(problem.initial(noise), network.parameters())
    return network.requires_grad_(True).train()


def _make_module(problem: Problem) -> nn.Module:
    model = problem.model
    if isinstance(model, Module):
        if isinstance(model, NetworkModule):
            network = copy.deepcopy(model.network)
        else:
            network = make_network(
                model.factory, model.settings, model.shape, problem.d_in, problem.d_out
            )
        return (
            network
            if model.shape is None
            else nn.Sequential(nn.Unflatten(1, model.shape), network)
        )
    if not isinstance(model, LinearModel | Mlp):
        raise InputError(
            f"model {type(model).__name__} is no torch module: use linear, mlp or module"
        )
    layers: list[nn.Module] = []
    for n_in, n_out in pairwise(model.widths(problem.d_in, problem.d_out)):
        layers += [nn.Linear(n_in, n_out, bias=model.bias)]
        if isinstance(model, Mlp):
            layers += [ACTIVATIONS[model.activation].module()]
    return nn.Sequential(*layers[: -1 if isinstance(model, Mlp) else None])
