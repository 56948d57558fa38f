"""All attackers say what one honest site says (Karimireddy, He and Jaggi 2022)."""

from __future__ import annotations

import numpy as np

from .knowledge import Knowledge, Reals


def mimic(known: Knowledge) -> Reals:
    """x_i of i = argmax |⟨z, x_i⟩|, with z the top eigenvector of Σ (x_i - μ)(x_i - μ)ᵀ.

    Each update is an honest one, so that nothing can tell it from one; but the copied site counts
    f + 1 times, and where sites differ the others go unheard. Aims at every rule, on data that are
    not alike. Of one round; the paper sums both expressions over the rounds before, which a caller
    does by handing in the sums.
    """
    # The top right singular vector of H x D by way of the H x H products: D is long, H is not.
    centred_HD = known.centred
    top_H = np.linalg.eigh(centred_HD @ centred_HD.T)[1][:, -1]
    projection_H = np.abs(known.honest_HD @ (centred_HD.T @ top_H))
    copied_D: Reals = known.honest_HD[np.argmax(projection_H)]
    return copied_D
