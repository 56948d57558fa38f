"""The same work by Flower's SecAgg+ primitives, called as its client module and its workflow call them.

Shape suffixes: D coordinates.
"""

from __future__ import annotations

import os

import numpy as np
import numpy.typing as npt
from _timing import Work

CLIPPING, TARGET, MODULUS = 8.0, 1 << 22, 1 << 32  # its default range, and 32-bit words


def flower_works(update_D: npt.NDArray[np.float32], n: int, threshold: int) -> dict[str, Work]:
    """Works by the names of ours; none without flwr."""
    try:
        from flwr.common import ndarray_to_bytes
        from flwr.common.secure_aggregation.crypto.shamir import combine_shares, create_shares
        from flwr.common.secure_aggregation.crypto.symmetric_encryption import encrypt, generate_shared_key
        from flwr.common.secure_aggregation.ndarrays_arithmetic import (
            parameters_addition,
            parameters_mod,
            parameters_multiply,
            parameters_subtraction,
        )
        from flwr.common.secure_aggregation.quantization import quantize
        from flwr.common.secure_aggregation.secaggplus_utils import pseudo_rand_gen
        from flwr.supercore.primitives.asymmetric import (
            bytes_to_private_key,
            bytes_to_public_key,
            generate_key_pairs,
            private_key_to_bytes,
            public_key_to_bytes,
        )
    except ImportError:
        return {}
    shape, seed = [update_D.shape], os.urandom(32)
    private, public = private_key_to_bytes(generate_key_pairs()[0]), public_key_to_bytes(generate_key_pairs()[1])
    shares = create_shares(private, threshold, n)
    row = [part.astype(np.int64) for part in quantize([update_D], CLIPPING, TARGET)]

    def agreed() -> bytes:
        return generate_shared_key(bytes_to_private_key(private), bytes_to_public_key(public))

    def masks(start: list[npt.NDArray[np.int64]], seeds: list[bytes]) -> list[npt.NDArray[np.int64]]:
        for number, one in enumerate(seeds):
            add = parameters_subtraction if number % 2 else parameters_addition
            start = add(start, pseudo_rand_gen(one, MODULUS, shape))
        return parameters_mod(start, MODULUS)

    def upload() -> object:
        words = quantize(parameters_multiply([update_D], 0.5), CLIPPING, TARGET)
        return [ndarray_to_bytes(part) for part in masks(words, [seed, *(agreed() for _ in range(n - 1))])]

    def deal() -> object:
        create_shares(private, threshold, n)
        create_shares(seed, threshold, n)
        return [encrypt(agreed(), bytes(300)) for _ in range(n - 1)]

    def add_up() -> object:
        total = row
        for _ in range(n - 1):
            total = parameters_mod(parameters_addition(total, row), MODULUS)
        return masks(total, [seed] * n)

    return {
        "masks": lambda: masks(row, [seed] * n),
        "masked upload": upload,
        "site: check keys, deal shares": deal,
        "server: open": lambda: [combine_shares(shares[:threshold]) for _ in range(n)],
        "server: add up": add_up,
    }
