"""Counter-based random numbers: a trial's noise depends on its key and a counter, on nothing else.

Threefry-2x32 with 20 rounds (Salmon, Moraes, Dror and Shaw 2011) in 32-bit integer tensors, so
that it vectorises over trials, compiles and runs on any device.
"""

import hashlib
import math
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = 0x1BD11BDA


def trial_keys(identities: Iterable[Sequence[object]], stream: str) -> Tensor:
    """Hash R trial identities into generator keys, int32, (R, 2), on the CPU.

    An identity is a sequence such as (seed, benchmark, dataset, entry, split, trial, fold); no
    part holds the unit separator, a control character that joins them. `stream` names the use
    of the numbers; different streams of one trial are independent.
    """
    words = []
    for identity in identities:
        text = "\x1f".join(map(str, (*identity, stream)))
        digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
        words.append([int.from_bytes(digest[i : i + 4], "little", signed=True) for i in (0, 4)])
    return torch.tensor(words, dtype=torch.int32).reshape(-1, 2)


def threefry(key: tuple[Tensor, Tensor], counter: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """Encrypt 64-bit counters by 64-bit keys: Threefry-2x32-20 on broadcastable int32 tensors.

    Integer overflow wraps, which is the arithmetic the cipher is defined in.
    """
    keys = (*key, key[0] ^ key[1] ^ _PARITY)
    x0, x1 = counter[0] + keys[0], counter[1] + keys[1]
    for block in range(5):
        for rotation in _ROTATIONS[block % 2]:
            x0 = x0 + x1
            # a right shift of int32 copies the sign bit: the mask removes the copies
            x1 = (x1 << rotation) | ((x1 >> (32 - rotation)) & ((1 << rotation) - 1))
            x1 = x1 ^ x0
        x0, x1 = x0 + keys[(block + 1) % 3], x1 + keys[(block + 2) % 3] + (block + 1)
    return x0, x1


def random_bits(keys: Tensor, step: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """Draw 2 x n random 32-bit words for each of R trials: two int32 tensors (R, n).

    `keys` are int32, (R, 2), and `step` is the first word of the n counters, an int32 scalar.
    """
    index = torch.arange(n, dtype=torch.int32, device=keys.device).unsqueeze(0)
    return threefry((keys[:, 0:1], keys[:, 1:2]), (step + torch.zeros_like(index), index))


def random_normals(
    keys: Tensor, step: Tensor, n: int, dtype: torch.dtype = torch.float32
) -> tuple[Tensor, Tensor]:
    """Draw 2 x n standard normals a trial by Box-Muller: cosine and sine halves, (R, n) each.

    `keys`, `step` and `n` are as in `random_bits`; ``float32`` uses 24 bits of each word,
    ``float64`` all 32. The halves are not concatenated, because a compiler would then compute
    everything twice.
    """
    radius, angle = _polar(*random_bits(keys, step, n), dtype)
    return radius * angle.cos(), radius * angle.sin()


def normal_slice(
    keys: Tensor, step: Tensor, n: int, start: int, stop: int, dtype: torch.dtype = torch.float32
) -> Tensor:
    """Return columns `start` to `stop` of both halves of `random_normals` in a row.

    The halves have 2 n columns, the slice is (R, stop - start). Nothing outside of it is drawn, so
    that a long stream never has to be in memory. `n` may exceed what one counter word holds; the
    remainder is added to `step`.
    """
    middle = min(max(n, start), stop)
    pieces = []
    for first, last, wave in ((start, middle, torch.cos), (middle - n, stop - n, torch.sin)):
        if first < last:
            index = torch.arange(first, last, device=keys.device).unsqueeze(0)
            counter = step + (index >> 32).to(torch.int32), index.to(torch.int32)
            radius, angle = _polar(*threefry((keys[:, 0:1], keys[:, 1:2]), counter), dtype)
            pieces.append(radius * wave(angle))
    return torch.cat(pieces, 1) if pieces else keys[:, :0].to(dtype)


def _polar(first: Tensor, second: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Turn random words into radii and angles of pairs of independent normals."""
    if dtype == torch.float64:
        # in (0, 1]: its logarithm is finite
        u = ((first.long() & 0xFFFFFFFF) + 1).double() * 2.0**-32
        angle = (second.long() & 0xFFFFFFFF).double() * (2.0**-32 * 2 * math.pi)
    else:
        u = (((first >> 8) & 0xFFFFFF) + 1).float() * 2.0**-24
        angle = ((second >> 8) & 0xFFFFFF).float() * (2.0**-24 * 2 * math.pi)
    return (-2 * u.log()).sqrt(), angle
