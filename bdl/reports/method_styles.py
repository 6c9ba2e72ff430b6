"""Colours and markers of methods: the same in every figure, by family and member."""

from collections.abc import Iterable
from itertools import count
from typing import Any
from zlib import crc32

FAMILIES: dict[str, tuple[str, tuple[str, ...]]] = {
    "vifa": (
        "#0072b2",
        (
            *("vifa", "vifa-nn", "vifa-lr", "vifa-1", "vifa-10", "vifa-k1", "vifa-k2"),
            *("vifa-converged", "vifa-corrected", "vifa-chosen", "vifa-logistic", "vifa-ramp"),
            *("fa-elbo", "fa-optimum"),
        ),
    ),
    "slang": (
        "#d55e00",
        (
            *("slang-nn", "slang-32", "slang-nn-published", "slang-1", "slang-2", "slang-5"),
            *("slang-8", "slang-4", "slang-16", "slang-online-eig-1", "slang-10"),
            *("slang-online-eig-5", "slang", "slang-online-eig-2", "slang-online-eig-8"),
            *("slang-online-eig",),
        ),
    ),
    "natural gradient": (
        "#e69f00",
        (
            *("noisy-adam", "noisy-kfac", "vogn", "vadam", "vprop", "vprop-root", "ivon"),
            *("natural-gradient", "hierarchical-vogn", "full-fisher", "full-hessian"),
            *("mf-fisher", "mf-hessian"),
        ),
    ),
    "variational": (
        "#009e73",
        (
            *("mean-field", "bbb", "cholesky-vi", "mean-field-exact", "mean-field-logistic"),
            *("mf-exact", "posteriors-vi", "numpyro-vi", "vbll", "gaussian", "student-t"),
            *("horseshoe", "spike-slab", "gaussian-found", "student-t-1", "student-t-precise"),
            *("student-t-gaussian", "horseshoe-leaving", "variational"),
        ),
    ),
    "iterates": (
        "#7b3fa0",
        (
            *("swag", "swag-nn", "online-fa", "multi-swag", "online-fa-em-nn"),
            *("online-fa-sga-nn", "online-fa-px-em-nn", "online-em", "online-sga"),
            *("online-px-em", "batch-svd", "batch-exact", "ppca", "sgd-fast-strong"),
            *("sgd-fast-weak", "sgd-fast-prior", "sgd-slow-strong", "sgd-slow-weak"),
            *("sgd-slow-prior", "average-10", "average-50"),
        ),
    ),
    "laplace": (
        "#cc5599",
        (
            *("laplace", "linearised-laplace", "last-layer-laplace", "laplace-torch"),
            *("laplace-torch-last", "laplace-logistic", "moment-matching", "exact-gaussian"),
            *("exact-gaussian-logistic", "full-exact"),
        ),
    ),
    "sampling": (
        "#8c5a1f",
        (
            *("nuts", "sghmc", "sgld", "csgmcmc", "mclmc", "posteriors-sghmc", "conjugate"),
            *("prior", "true-weights"),
        ),
    ),
    "points": (
        "#444444",
        (
            *("map", "adam", "ensemble", "dropout", "gaussian-process", "deep-ensemble"),
            *("mc-dropout", "bayesian-ridge", "adam-prior", "adam-fair", "adam-map", "ngboost"),
            *("rmsprop",),
        ),
    ),
}
"""Hue of each family of methods, and the names of its members in a fixed order.

Three members in a row have three shades, so the order sets apart those that share a figure.

The hues are close to those of Okabe and Ito (2008), which are told apart under every common colour
blindness. Methods of no family are among the points.
"""
MARKERS = "osD^vPX*<>p"
_TOWARDS = ((0.0, 0.0), (0.45, 0.0), (0.4, 1.0))
"""Share and brightness of the grey that is mixed into the hue of each shade."""
_MEMBERS = len(MARKERS) * len(_TOWARDS)
"""Members of a family that look different: the two numbers have no common factor."""


def entry_styles(entries: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Return the colour and marker of each entry; lines are solid.

    Those of the shipped benchmarks look the same in every figure. Another name, such as that of a
    user's entry, has the look of the family that its first word names, and of a member of it that
    no other entry of the figure has.
    """
    names = list(entries)
    styles: dict[str, dict[str, Any]] = {}
    taken: set[tuple[str, int]] = set()
    for name in sorted(names, key=lambda name: _find_family(name) is None):
        family = _find_family(name)
        if family is not None:
            member = FAMILIES[family][1].index(name)
        else:
            family = next((word for word in FAMILIES if name.startswith(word)), "points")
            first = crc32(name.encode())
            member = next(
                (first + step) % _MEMBERS
                for step in count()
                if (family, (first + step) % _MEMBERS) not in taken or step >= _MEMBERS
            )
        taken.add((family, member))
        styles[name] = _member_style(FAMILIES[family][0], member)
    return {name: styles[name] for name in names}


def _find_family(name: str) -> str | None:
    return next((family for family, (_, names) in FAMILIES.items() if name in names), None)


def _member_style(hue: str, member: int) -> dict[str, Any]:
    """Return the look of a member: of two, shade or marker differ."""
    shade = member % len(_TOWARDS)
    share, brightness = _TOWARDS[shade]
    channels = (int(hue[i : i + 2], 16) for i in (1, 3, 5))
    mixed = (round((1 - share) * channel + share * 255 * brightness) for channel in channels)
    return {
        "color": "#" + "".join(f"{channel:02x}" for channel in mixed),
        "marker": MARKERS[member % len(MARKERS)],
        "linestyle": "-",
    }
