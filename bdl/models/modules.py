"""`torch.nn.Module` as a function of a flat parameter vector, and models as such modules."""

import copy
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache, partial
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import torch
from annotated_types import Gt
from torch import Tensor, nn
from torch.func import functional_call

from bdl.errors import InputError
from bdl.models.base import Layers
from bdl.models.networks import ACTIVATIONS, LinearModel, Mlp
from bdl.models.problem import Problem
from bdl.models.skeleton import Skeleton, import_factory, make_network, take_apart
from bdl.registry import fingerprint_file

ROWS = 128
"""Rows of a minibatch from which statistics are recomputed."""


@dataclass(frozen=True, eq=False)
class Module:
    """A network that a function makes.

    In training, batch normalisation uses the statistics of the minibatch; predictions use running
    averages of them, which `track` makes. Training changes no statistic of its own accord, so that
    gradients and `vmap` work.

    Parameters
    ----------
    factory
        ``module:function`` or ``path/to/file.py:function``. It is called with the number of inputs
        (or `shape`, if there is one) and that of outputs, and `settings` by name; it returns a
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

    def __post_init__(self) -> None:
        _ = self._code  # now: later the same name may stand for another network

    @cached_property
    def _code(self) -> str:
        """The digest of the factory's file, which copies keep; empty if it is in no such file."""
        return fingerprint_file(self.factory)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Module) and self._identity == other._identity

    def __hash__(self) -> int:
        return hash(self._identity)

    @property
    def _identity(self) -> tuple[Any, ...]:
        return (self.factory, self._code, self._settings, self.shape, self.batch_norm)

    def __reduce__(self) -> tuple[Any, ...]:
        """Leave the network behind when pickled; it is built again."""
        fields = (self.factory, self.settings, self.shape, self.batch_norm)
        return _copy_module, (fields, self._code)

    @property
    def sources(self) -> tuple[str, ...]:
        """Names of the Python modules, besides this one, whose code decides what it computes."""
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

        There are none if they are recomputed.
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

        Under `vmap`, parameters, inputs and statistics all have to be mapped.
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
        """Whether predictions need statistics by `recompute_statistics`."""
        return self.batch_norm == "recompute"

    def recompute_statistics(self, theta: Tensor, x: Tensor, d_out: int) -> dict[str, Tensor]:
        """Average the statistics of minibatches of training inputs, (n, d_in), for `predict`.

        Minibatches have `ROWS` rows; a smaller last one is left out, unless it is the only one.
        Their rows are drawn at random, as in training: those of rows in an order would vary less.
        `theta` may be mapped, `x` not.
        """
        skeleton = self._skeleton(x.shape[-1], d_out)
        tensors, means = skeleton.tensors(theta), dict[str, Tensor]()
        # of NumPy, since PyTorch draws no numbers under vmap; always the same
        order = torch.from_numpy(np.random.default_rng(0).permutation(len(x))).to(x.device)
        minibatches = torch.split(order, ROWS)[: max(1, len(x) // ROWS)]
        with torch.no_grad():
            for minibatch in minibatches:
                # The network writes into these tensors. The sum with 0 * theta makes them mapped
                # by vmap wherever the parameters are.
                statistics = {
                    name: 0 * theta[0] + value.to(theta)
                    for name, value in skeleton.statistics.items()
                }
                rows = self._rows(x[minibatch])
                functional_call(skeleton.averaging, tensors | statistics, (rows,))
                for name, value in statistics.items():
                    means[name] = value / len(minibatches) + means.get(name, 0)
        return means

    def last_layer(self, d_in: int, d_out: int) -> tuple[int, int, bool]:
        """Return inputs and outputs of the last layer, and whether it has biases.

        `InputError` if it is not dense, or is not the layer that is called last.
        """
        skeleton = self._skeleton(d_in, d_out)
        shapes = skeleton.shapes
        layer = [*shapes][-1].rpartition(".")[0]
        if layer != skeleton.last_called:
            raise InputError(
                f"{self._owner}: {skeleton.last_called} is called last, and the parameters of "
                f"{layer} come last: let __init__ make the layers in the order of their use, and "
                "forward call each"
            )
        weight, *biases = [
            shape for name, shape in shapes.items() if name.rpartition(".")[0] == layer
        ]
        if len(weight) != 2 or any(shape != weight[:1] for shape in biases):
            raise InputError(
                f"{self._owner}: the last layer, {layer}, is not dense: use another method"
            )
        return weight[1], weight[0], bool(biases)

    def dense_layers(
        self, theta: Tensor, x: Tensor, d_out: int, error: Callable[[Tensor], Tensor]
    ) -> Layers:
        """Return inputs and errors of dense layers as `LayeredModel.backpropagate` does.

        Hooks record them, which do not work under vmap. `InputError` if the network has other
        parameters, or a layer is used more than once, or for several inputs a row.
        """
        skeleton = self._skeleton(x.shape[-1], d_out)
        calls = list[tuple[str, Tensor, Tensor]]()

        def record(name: str, layer: nn.Module, inputs: tuple[Tensor], output: Tensor) -> None:
            calls.append((name, inputs[0], output))

        handles = []
        for name, layer in skeleton.evaluation.named_modules():
            if isinstance(layer, nn.Linear):
                handles.append(layer.register_forward_hook(partial(record, name)))
        try:
            f = self.predict(theta.detach().requires_grad_(), x, d_out, {})
        finally:
            for handle in handles:
                handle.remove()
        names = [*dict.fromkeys(name.rpartition(".")[0] for name in skeleton.shapes)]
        if sorted(name for name, _, _ in calls) != sorted(names):
            raise InputError(
                f"{type(self).__name__}: not all parameters are those of dense layers, "
                "each used once"
            )
        if any(layer_inputs.ndim != 2 for _, layer_inputs, _ in calls):
            # the errors of a row's positions are correlated, which factors of rows do not have
            raise InputError(
                f"{self._owner}: inputs of a dense layer have several axes a row: use curvature: ggn"
            )
        errors = torch.autograd.grad(f, [output for _, _, output in calls], error(f.detach()))
        layers = {}
        for (name, layer_inputs, _), layer_errors in zip(calls, errors, strict=True):
            layers[name] = (layer_inputs.detach(), layer_errors)
        return tuple(layers[name] for name in names)

    def widest(self, d_in: int, d_out: int) -> int:
        return self._skeleton(d_in, d_out).widest

    @property
    def _settings(self) -> str:
        # a dictionary has no hash; sorted, since equal models may list their settings in another
        # order
        return json.dumps(self.settings, sort_keys=True)

    @cached_property
    def _skeletons(self) -> dict[tuple[int, int], Skeleton]:
        """Skeletons by numbers of inputs and outputs.

        A dictionary rather than a cached function: a compiler would trace the call of that.
        """
        return {}

    def _skeleton(self, d_in: int, d_out: int) -> Skeleton:
        key = (d_in, d_out)
        if key not in self._skeletons:
            self._skeletons[key] = self._build_skeleton(d_in, d_out)
        return self._skeletons[key]

    @property
    def _owner(self) -> str:
        """What messages call the network."""
        return f"factory '{self.factory}'"

    def _build_skeleton(self, d_in: int, d_out: int) -> Skeleton:
        return _build_shared_skeleton(
            self.factory, self._code, self._settings, self.shape, d_in, d_out
        )

    def _rows(self, x: Tensor) -> Tensor:
        """Restore the shape of each row: (M, d_in) -> (M, *shape)."""
        return x if self.shape is None else x.view(*x.shape[:-1], *self.shape)


def _copy_module(fields: tuple[Any, ...], code: str) -> Module:
    """Make a copy of a model, whose factory is as it was for the first."""
    module = Module(*fields)
    vars(module)["_code"] = code
    return module


@lru_cache(maxsize=16)
def _build_shared_skeleton(
    factory: str,
    code: str,
    settings: str,
    shape: tuple[int, ...] | None,
    d_in: int,
    d_out: int,
) -> Skeleton:
    """Build a skeleton, once for all equal models, whose factories have the same `code`.

    `InputError` if the file of the factory is another one by now, and as `take_apart` says.
    """
    if fingerprint_file(factory) != code and Path(factory.rpartition(":")[0]).exists():
        raise InputError(
            f"factory '{factory}': its file has changed since the model was made: fit it anew"
        )
    net = make_network(factory, json.loads(settings), shape, d_in, d_out)
    return take_apart(f"factory '{factory}'", net, (d_in,) if shape is None else shape, d_out)


@dataclass(frozen=True, eq=False)
class NetworkModule(Module):
    """A network that exists already, which is copied; otherwise as `Module`.

    Parameters
    ----------
    network
        The network, mapping (M, inputs) or (M, *shape) to (M, outputs). It is left as it is.
    """

    factory: str = ""
    network: nn.Module = field(kw_only=True)

    def __post_init__(self) -> None:
        network = copy.deepcopy(self.network).float().cpu()
        # one that was frozen as a whole, as for predictions, is a network like any other
        if not any(value.requires_grad for value in network.parameters()):
            network.requires_grad_(True)
        object.__setattr__(self, "network", network)

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)

    def __reduce__(self) -> tuple[Any, ...]:
        """Keep the network when pickled, and not the skeletons, which are built again."""
        return partial(NetworkModule, shape=self.shape, network=self.network), ()

    @property
    def sources(self) -> tuple[str, ...]:
        """Names of the Python modules, besides this one, whose code decides what it computes."""
        return (type(self.network).__module__,)

    @property
    def weights(self) -> Tensor:
        """The parameters that the network came with, (D,)."""
        return torch.cat([value.detach().flatten() for value in self.network.parameters()])

    @property
    def _owner(self) -> str:
        return f"model {type(self.network).__name__}"

    def _build_skeleton(self, d_in: int, d_out: int) -> Skeleton:
        row = (d_in,) if self.shape is None else self.shape
        return take_apart(self._owner, copy.deepcopy(self.network), row, d_out)


def torch_module(problem: Problem, seed: int) -> nn.Module:
    """Build the model of a problem as a module, float32, on the CPU.

    `InputError` if it cannot be built.
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
        if model.shape is None:
            return network
        return nn.Sequential(nn.Unflatten(1, model.shape), network)
    if not isinstance(model, LinearModel | Mlp):
        raise InputError(
            f"model {type(model).__name__} is no torch module: use linear, mlp or module"
        )
    layers: list[nn.Module] = []
    for n_in, n_out in pairwise(model.widths(problem.d_in, problem.d_out)):
        if layers and isinstance(model, Mlp):
            layers.append(ACTIVATIONS[model.activation].module())
        layers.append(nn.Linear(n_in, n_out, bias=model.bias))
    return nn.Sequential(*layers)
