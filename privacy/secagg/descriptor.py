"""What a session is about, in bytes that everybody hashes alike: the hash is the session's id."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, replace
from enum import IntEnum

from ...errors import ConfigError
from .codes import AbortCode, abort
from .encoding import DIGEST_BYTES, MAX_TEXT_BYTES, SITE_ID_BYTES, Reader, listed, number, real, text
from .keys import PROTOCOL
from .prg import Ring, Suite
from .quantise import MAX_STEPS, fits, largest_coordinate
from .thresholds import majority, share_threshold

VERSION = 1
MAX_SITES = 10_000
WHOLE_NUMBERS = "sum"  # the rule of sessions that add up whole numbers, as analytics do
NUM_DEADLINES = 5  # for Keys, Shares, Masked, Ack, Unmask


class Mode(IntEnum):
    """What is protected, and how."""

    MASKS = 1
    GROUPS = 2
    SKETCH = 3
    SHARES = 4


class Noise(IntEnum):
    """What each site adds to its update, so that their sum is differentially private."""

    NONE = 0
    SKELLAM = 1
    DISCRETE_GAUSSIAN = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionDescriptor:
    """All that a server may choose about a session.

    Attributes:
        suite: the cipher of the masks.
        federation: its name.
        run: the run's name.
        round: the round, from 0.
        attempt: from 1; a round that is tried again has a higher one.
        mode: what is protected.
        roster_digest: SHA-256 of the signed roster.
        participants: the ids of the sites asked, sorted, each once.
        num_coordinates: length of the update.
        layout_digest: SHA-256 of the tensors' names, shapes and order.
        model_digest: SHA-256 of the model that the sites start from.
        config_digest: SHA-256 of the run's configuration for the sites.
        ring: words of the sum.
        clip_norm: C, to which each update is clipped; with the rule "sum", whose vectors are whole numbers that are
            taken as they are, the largest magnitude of one of them.
        scale: s, steps per unit; 1 with the rule "sum".
        weighted: whether each update is multiplied by a whole number up to 1024, which is summed as well.
        degree: k, neighbours of each site; 0 for all.
        threshold: t, shares that recover a secret if every participant sends its keys; in the smallest group, where
            the sums are over groups.
        dropouts: D, how many sites may be lost.
        colluders: c, how many sites may collude with the server.
        rule: how the updates are combined.
        min_sites: fewest sites at any stage, in every group where the sums are over groups.
        min_survivors: fewest sites in a sum.
        deadlines_seconds: for Keys, Shares, Masked, Ack and Unmask.
        group_size: g, the fewest sites of a group; 0 where the sum is over all.
        regroups: whether the groups are drawn anew in every round, and not once in a run.
        byzantine: f, so many sites may send any update.
        privacy_threshold: T, so many holders together learn nothing from shares of an update; 0 where none are made.
        packing: K, blocks of an update in one polynomial.
        wrong_holders: E, so many holders may answer wrongly.
        strict: whether sketches come with a proof that they are short.
        noise: what each site adds.
        noise_multiplier: z, the sum's noise in units of the clip norm; 0 without noise.

    Raises:
        ConfigError: a field is out of range by itself; what fields mean for a site's secrecy is the policy's matter.
    """

    suite: Suite
    federation: str
    run: str
    round: int
    attempt: int
    mode: Mode
    roster_digest: bytes
    participants: tuple[bytes, ...]
    num_coordinates: int
    layout_digest: bytes
    model_digest: bytes
    config_digest: bytes
    ring: Ring
    clip_norm: float
    scale: float
    weighted: bool
    degree: int
    threshold: int
    dropouts: int
    colluders: int
    rule: str
    min_sites: int
    min_survivors: int
    deadlines_seconds: tuple[int, ...]
    group_size: int = 0
    regroups: bool = False
    byzantine: int = 0
    privacy_threshold: int = 0
    packing: int = 0
    wrong_holders: int = 0
    strict: bool = False
    noise: Noise = Noise.NONE
    noise_multiplier: float = 0.0

    def __post_init__(self) -> None:
        people = self.participants
        counts = (
            *(self.degree, self.threshold, self.dropouts, self.colluders, self.min_sites, self.min_survivors),
            *(self.group_size, self.byzantine, self.privacy_threshold, self.packing, self.wrong_holders),
        )
        digests = (self.roster_digest, self.layout_digest, self.model_digest, self.config_digest)
        for wrong, what in (
            (list(people) != sorted(set(people)), "the participants are not sorted, or one is named twice"),
            (any(len(site) != SITE_ID_BYTES for site in people), "a participant's id is not 16 bytes long"),
            (not 1 <= len(people) <= MAX_SITES, f"there are {len(people)} participants, expected 1 to {MAX_SITES}"),
            (any(len(digest) != DIGEST_BYTES for digest in digests), "a digest is not 32 bytes long"),
            (not 0 <= self.round < 2**63, f"the round is {self.round}"),
            (not 1 <= self.attempt < 2**32, f"the attempt is {self.attempt}, expected 1 or more"),
            (any(not 0 <= count < 2**32 for count in (*counts, *self.deadlines_seconds)), "a count is out of range"),
            (
                any(len(name.encode()) > MAX_TEXT_BYTES for name in (self.federation, self.run, self.rule)),
                f"a name is longer than {MAX_TEXT_BYTES} bytes",
            ),
            (not 1 <= self.num_coordinates < 2**40, f"the update has {self.num_coordinates} coordinates"),
            (not (math.isfinite(self.clip_norm) and self.clip_norm > 0), f"the clip norm is {self.clip_norm}"),
            (not (math.isfinite(self.scale) and self.scale > 0), f"the scale is {self.scale}"),
            (self.degree % 2 == 1, f"the degree {self.degree} is odd; half the neighbours are on either side"),
            (
                not (math.isfinite(self.noise_multiplier) and self.noise_multiplier >= 0),
                f"the noise multiplier is {self.noise_multiplier}",
            ),
            (
                (self.noise is Noise.NONE) != (self.noise_multiplier == 0),
                f"the noise is {self.noise.name.lower()}, its multiplier {self.noise_multiplier}",
            ),
            (len(self.deadlines_seconds) != NUM_DEADLINES, f"there are not {NUM_DEADLINES} deadlines"),
        ):
            if wrong:
                raise ConfigError(f"the session cannot be: {what}")
        if self.scale * self.clip_norm > MAX_STEPS:
            raise ConfigError(f"the session cannot be: scale times clip norm is above {MAX_STEPS}")

    @property
    def num_sites(self) -> int:
        """n."""
        return len(self.participants)

    @property
    def num_words(self) -> int:
        """Words of a masked update: its coordinates, and its weight if there is one."""
        return self.num_coordinates + self.weighted

    @property
    def needed_acks(self) -> int:
        """t_ack: over all participants, whose number no site needs to be told."""
        return majority(self.num_sites, self.colluders)

    @property
    def needed_survivors(self) -> int:
        """Fewest sites in the sum."""
        return max(self.min_sites, self.min_survivors)

    def share_threshold(self, num_sites: int) -> int:
        """t, once ``num_sites`` have sent keys."""
        return share_threshold(num_sites, self.colluders, self.degree)

    @property
    def whole(self) -> bool:
        """Whether the sites send whole numbers (int64), and not updates (float32)."""
        return self.rule == WHOLE_NUMBERS

    @property
    def honest_survivors(self) -> int:
        """n_min - c: of so many sites at least the server cannot tell the noise from the sum."""
        return self.needed_survivors - self.colluders

    @property
    def fits(self) -> bool:
        """Whether the sum of all participants, with their noise, cannot wrap around."""
        noise = self.noise_multiplier * self.scale * self.clip_norm  # of the honest survivors
        noise *= math.sqrt(self.num_sites / max(self.honest_survivors, 1))
        return fits(
            self.ring, self.num_sites, self.scale, self.clip_norm, weighted=self.weighted, noise_deviation=noise
        )

    @property
    def largest_coordinate(self) -> int:
        """x_max of one update."""
        return largest_coordinate(self.scale, self.clip_norm)

    @property
    def sid(self) -> bytes:
        """The session's id: SHA-256("fl-sa/v1/sid" ‖ descriptor)."""
        return hashlib.sha256(PROTOCOL + b"sid" + self.to_bytes()).digest()

    def to_bytes(self) -> bytes:
        """Every field in the order of the class; integers big-endian, reals IEEE doubles, lists after their count."""
        return b"".join(
            (
                number(VERSION, 2),
                number(self.suite, 1),
                text(self.federation),
                text(self.run),
                number(self.round, 8),
                number(self.attempt, 4),
                number(self.mode, 1),
                self.roster_digest,
                listed(self.participants),
                number(self.num_coordinates, 8),
                self.layout_digest + self.model_digest + self.config_digest,
                number(self.ring, 1),
                real(self.clip_norm),
                real(self.scale),
                number(self.weighted, 1),
                number(self.degree, 4),
                number(self.threshold, 4),
                number(self.dropouts, 4),
                number(self.colluders, 4),
                text(self.rule),
                number(self.min_sites, 4),
                number(self.min_survivors, 4),
                listed(number(seconds, 4) for seconds in self.deadlines_seconds),
                number(self.group_size, 4),
                number(self.regroups, 1),
                number(self.byzantine, 4),
                number(self.privacy_threshold, 4),
                number(self.packing, 4),
                number(self.wrong_holders, 4),
                number(self.strict, 1),
                number(self.noise, 1),
                real(self.noise_multiplier),
            )
        )

    @staticmethod
    def from_bytes(data: bytes) -> SessionDescriptor:
        """Read what ``to_bytes`` wrote.

        Raises:
            SecureSumFailed: "bad-message"; "policy" for a version, suite, mode or ring that does not exist here, and
                for fields out of range.
        """
        reader = Reader(data, "a session descriptor")
        try:
            if (version := reader.number(2)) != VERSION:
                raise abort(AbortCode.POLICY, f"the session speaks version {version}, expected {VERSION}")
            return _read(reader)
        except (ConfigError, ValueError) as error:
            raise abort(AbortCode.POLICY, str(error)) from None


def _read(reader: Reader) -> SessionDescriptor:
    found = SessionDescriptor(
        suite=Suite(reader.number(1)),
        federation=reader.text(),
        run=reader.text(),
        round=reader.number(8),
        attempt=reader.number(4),
        mode=Mode(reader.number(1)),
        roster_digest=reader.take(DIGEST_BYTES),
        participants=tuple(reader.take(SITE_ID_BYTES) for _ in range(reader.count(SITE_ID_BYTES))),
        num_coordinates=reader.number(8),
        layout_digest=reader.take(DIGEST_BYTES),
        model_digest=reader.take(DIGEST_BYTES),
        config_digest=reader.take(DIGEST_BYTES),
        ring=Ring(reader.number(1)),
        clip_norm=reader.real(),
        scale=reader.real(),
        weighted=_flag(reader.number(1)),
        degree=reader.number(4),
        threshold=reader.number(4),
        dropouts=reader.number(4),
        colluders=reader.number(4),
        rule=reader.text(),
        min_sites=reader.number(4),
        min_survivors=reader.number(4),
        deadlines_seconds=tuple(reader.number(4) for _ in range(reader.count(4))),
        group_size=reader.number(4),
        regroups=_flag(reader.number(1)),
        byzantine=reader.number(4),
        privacy_threshold=reader.number(4),
        packing=reader.number(4),
        wrong_holders=reader.number(4),
        strict=_flag(reader.number(1)),
        noise=Noise(reader.number(1)),
        noise_multiplier=reader.real(),
    )
    reader.end()
    return found


def _flag(value: int) -> bool:
    if value > 1:
        raise abort(AbortCode.BAD_MESSAGE, f"a flag is {value}, expected 0 or 1")
    return value == 1


def next_attempt(descriptor: SessionDescriptor, without: tuple[bytes, ...]) -> SessionDescriptor:
    """The same round once more, without the sites that spoilt it; keys are made afresh, since the id differs.

    With groups the participants stay, or all groups would be others: whoever is to be left out is not asked again.
    With sketches, at least every other site left out has lied, so that so many fewer liars are expected.

    Raises:
        ConfigError: nobody would be left.
    """
    again = replace(descriptor, attempt=descriptor.attempt + 1)
    if descriptor.mode is Mode.GROUPS:
        return again
    left = tuple(site for site in descriptor.participants if site not in without)
    if descriptor.mode is Mode.SKETCH:
        gone = -(-(descriptor.num_sites - len(left)) // 2)
        fewer = max(0, descriptor.byzantine - gone), max(0, descriptor.wrong_holders - gone)
        again = replace(again, byzantine=fewer[0], wrong_holders=fewer[1])
    return replace(again, participants=left, threshold=again.share_threshold(len(left)))
