"""Counter-based random numbers: a trial's noise depends on its key and a counter, on nothing else.

Threefry-2x32 with 20 rounds (Salmon, Moraes, Dror and Shaw 2011) in 32-bit integer tensors, so that it
vectorises over trials, compiles and runs on any device.
"""

import hashlib
import math
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = 0x1BD11BDA


def trial_keys(identities: Iterable[Sequence[object]], stream: str) -> Tensor:
    """Hash trial identities into generator keys.

    Parameters
    ----------
    identities
        One sequence a trial, such as (seed, benchmark, dataset, entry, split, trial, fold); no part holds the
        unit separator, a control character that joins them.
    stream
        What the numbers are for; different streams of one trial are independent.

    Returns
    -------
    Tensor
        Keys, int32, shape (R, 2), on the CPU.
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
    """Draw 2 x n random 32-bit words a trial.

    Parameters
    ----------
    keys
        int32, (R, 2).
    step
        First counter word, an int32 scalar.
    n
        Number of counters.

    Returns
    -------
    tuple of Tensor
        Two int32 tensors of shape (R, n).
    """
    index = torch.arange(n, dtype=torch.int32, device=keys.device).unsqueeze(0)
    return threefry((keys[:, 0:1], keys[:, 1:2]), (step + torch.zeros_like(index), index))


def random_normals(keys: Tensor, step: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """Draw 2 x n standard normals a trial by Box-Muller; arguments as in `random_bits`.

    Returns
    -------
    tuple of Tensor
        Two float32 tensors of shape (R, n): the cosine and the sine halves. They are not concatenated,
        because a compiler would then compute everything twice.
    """
    first, second = random_bits(keys, step, n)
    u = (((first >> 8) & 0xFFFFFF) + 1).float() * 2.0**-24  # in (0, 1]: its logarithm is finite
    angle = ((second >> 8) & 0xFFFFFF).float() * (2.0**-24 * 2 * math.pi)
    radius = (-2 * u.log()).sqrt()
    return radius * angle.cos(), radius * angle.sin()
