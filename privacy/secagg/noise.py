"""What a site adds to its own words before they are masked, so that the sum is differentially private.

Each site adds integer noise of variance (z·s·C)² / (n_min - c); a sum then holds at least (z·s·C)² that no coalition
of c sites and the server knows (Kairouz et al. 2021; Agarwal et al. 2021).

Shape suffixes: D words, B a piece of them.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from .. import events, inverse
from ..inverse import InverseTable, discrete_gaussian_table, skellam_table
from ..secrets import Secret
from .descriptor import Noise, SessionDescriptor
from .keys import derive
from .prg import PIECE_BYTES, Keystream, Ring, Words, piece_buffer
from .quantise import finest_scale, fits

_PER_PIECE = PIECE_BYTES // 8


def total_variance(session: SessionDescriptor) -> Fraction:
    """μ = (z·s·C)², exactly: the variance that the honest survivors' noise has at least, in squared steps."""
    return _variance(session.noise_multiplier, session.scale, session.clip_norm)


def site_variance(session: SessionDescriptor) -> Fraction:
    """What each site adds: μ / (n_min - c), with at least one honest survivor."""
    return total_variance(session) / session.honest_survivors


def noise_fault(session: SessionDescriptor) -> str:
    """Why the sum of a session cannot have the noise that it asks for; "" if it can."""
    if session.noise is Noise.NONE:
        return ""
    if session.honest_survivors < 1:
        return f"{session.colluders} of {session.needed_survivors} sites may collude: nobody's noise would be left"
    variance = site_variance(session)
    least = inverse.MIN_DEVIATION if session.noise is Noise.SKELLAM else events.MIN_DEVIATION
    if least**2 <= variance <= inverse.MAX_DEVIATION**2:
        return ""
    expected = f"expected {least} to {inverse.MAX_DEVIATION:.0f}"
    return f"the noise of one site has a standard deviation of {math.sqrt(variance):.6g} steps, {expected}"


def finest_noisy_scale(num_sites: int, honest_survivors: int, clip_norm: float, noise_multiplier: float) -> float:
    """The largest power of two of steps per unit with which the noise can be drawn, and a sum fits 32-bit words.

    1 where none does: then ``noise_fault`` or the ring says so.
    """
    scale = finest_scale(num_sites, clip_norm, weighted=False)

    def too_fine() -> bool:
        variance = _variance(noise_multiplier, scale, clip_norm) / honest_survivors
        summed = math.sqrt(variance * num_sites)
        holds = fits(Ring.W32, num_sites, scale, clip_norm, weighted=False, noise_deviation=summed)
        return variance > inverse.MAX_DEVIATION**2 or not holds

    while scale > 1 and too_fine():
        scale /= 2
    return scale


def _variance(noise_multiplier: float, scale: float, clip_norm: float) -> Fraction:
    return (Fraction(noise_multiplier) * Fraction(scale) * Fraction(clip_norm)) ** 2


def noise_table(session: SessionDescriptor) -> InverseTable | None:
    """The table that a site's noise is drawn from; None in a session without noise.

    Raises:
        ConfigError: ``noise_fault`` has something to say.
    """
    if session.noise is Noise.NONE:
        return None
    make = skellam_table if session.noise is Noise.SKELLAM else discrete_gaussian_table
    return make(site_variance(session))


def add_noise(words_D: Words, session: SessionDescriptor, seed: Secret) -> None:
    """Add this site's noise to its words, in place, modulo 2^w; nothing in a session without.

    All of it follows from ``seed`` and the session, so that a site that restarts adds the same noise again.
    Fresh noise on the same update would be a second release.
    """
    table = noise_table(session)
    if table is None:
        return
    stream, ties = (Keystream(derive(session.sid, seed, label)) for label in ("noise", "noise/ties"))
    buffer, tie_buffer = piece_buffer(), piece_buffer()

    def tie_words(count: int) -> Words:
        ties.into(tie_buffer, 8 * count)
        return tie_buffer[: 8 * count].view("<u8")

    for start in range(0, len(words_D), _PER_PIECE):
        words_B = words_D[start : start + _PER_PIECE]
        stream.into(buffer, 8 * len(words_B))
        noise_B = table.values(buffer[: 8 * len(words_B)].view("<u8"), tie_words)
        np.add(words_B, noise_B.astype(words_D.dtype), out=words_B)
