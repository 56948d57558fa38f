"""A run's plan: what is trained, by whom, how, and how the updates become a model.

Written by the operator as TOML, validated once, immutable afterwards, the same on every side.
"""

from __future__ import annotations

from typing import Annotated, Literal, get_args

from pydantic import Field, PositiveInt, model_validator

from .configuration import Settings

Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,62}$")]
Positive = Annotated[float, Field(gt=0)]
NonNegative = Annotated[float, Field(ge=0)]
Decay = Annotated[float, Field(ge=0, lt=1)]

Protection = Literal["none", "masks", "groups", "sketch", "shares"]
PROTECTIONS: tuple[Protection, ...] = get_args(Protection)

SEED_LIMIT = 1 << 63


class Cohort(Settings):
    """Who takes part in a round, and when it closes.

    ``size`` sites are chosen from the connected ones: ``count``, or ``fraction`` of them, never
    fewer than ``minimum``. With ``over_selection`` more are asked, and the round closes as soon
    as ``size`` updates are in. A site that shows no progress for ``deadline_seconds`` counts as
    absent; the round then closes with what it has if that meets ``quorum`` (default: ``size``).
    ``round_seconds`` bounds a round in which something still moves, so that a site that only claims
    progress cannot hold the others up; without it there is no such bound.
    A late update is dropped, or kept for the next round in place of one its site did not send.
    Before a round, the run waits for ``minimum`` connected sites, for ``patience_seconds`` at
    most if that is set.
    """

    fraction: Annotated[float, Field(gt=0, le=1)] = 1.0
    count: PositiveInt | None = None
    minimum: PositiveInt = 1
    over_selection: Annotated[float, Field(ge=0, le=4)] = 0.0
    quorum: PositiveInt | None = None
    deadline_seconds: Positive = 120.0
    round_seconds: Positive | None = None
    late: Literal["drop", "keep"] = "drop"
    patience_seconds: Positive | None = None

    @property
    def sites_needed(self) -> int:
        """How many sites must be there before a round may start."""
        return max(self.minimum, self.count or 0, self.quorum or 0)

    @property
    def fewest_updates(self) -> int:
        """How many updates a round may close with at the least."""
        return self.quorum or self.count or self.minimum

    @model_validator(mode="after")
    def _consistent(self) -> Cohort:
        # A plan that was written out states the default fraction beside the count, and must be read again.
        if self.count is not None and self.fraction != 1.0:
            raise ValueError("give count or fraction, not both")
        if self.count is not None and self.count < self.minimum:
            raise ValueError(f"count is {self.count}, below minimum {self.minimum}")
        if self.quorum is not None and self.count is not None and self.quorum > self.count:
            raise ValueError(f"quorum is {self.quorum}, above count {self.count}")
        return self


class LocalTraining(Settings):
    """What each site does between receiving the model and sending its update.

    Exactly one of ``epochs`` and ``steps``. ``proximal_mu`` is FedProx's μ (Li et al. 2020,
    eq. 2): the local loss gains μ/2·‖w − w_received‖².
    """

    epochs: PositiveInt | None = None
    steps: PositiveInt | None = None
    batch_size: PositiveInt = 32
    optimizer: Literal["sgd", "adam", "adamw"] = "sgd"
    learning_rate: Positive = 0.01
    momentum: Decay = 0.0
    weight_decay: NonNegative = 0.0
    proximal_mu: NonNegative = 0.0
    max_seconds: Positive | None = None

    @model_validator(mode="after")
    def _one_length(self) -> LocalTraining:
        if (self.epochs is None) == (self.steps is None):
            raise ValueError("give exactly one of epochs and steps")
        if self.momentum and self.optimizer != "sgd":
            raise ValueError(f"momentum belongs to sgd, not to {self.optimizer}")
        return self


class AggregatorPlan(Settings):
    """How updates are combined, and what is believed of them.

    ``name`` is one of the rules of ``foedus.aggregators``, or one that a package brings;
    ``f``, ``m``, ``iterations``, ``clip``, ``selections`` and ``coordinates`` are the rule's own,
    and ``parameters`` those of a package's rule. A number of examples is what a site says of itself:
    by default it weighs the mean alone, ``max_examples`` at most. Before the rule looks, an update
    longer than ``reject_norm`` is refused, one longer than ``clip_norm`` is scaled back to it, and
    ``pre`` mixes what is left: by nearest neighbours, in buckets of ``buckets`` updates, or both.
    ``reference`` names the site that the rule fltrust measures the others by. Floating buffers
    are averaged, or the median where the rule withstands liars, or stay each site's own.
    """

    name: Name = "mean"
    f: Annotated[int, Field(ge=0)] | None = None
    m: PositiveInt | None = None
    iterations: PositiveInt | None = None
    clip: Positive | None = None
    selections: Literal["n-2f-2", "n-2f"] | None = None
    coordinates: PositiveInt | None = None
    parameters: dict[str, bool | int | float | str] = Field(default_factory=dict)
    weighting: Literal["examples", "uniform"] | None = None
    max_examples: PositiveInt = 1_000_000
    clip_norm: Positive | None = None
    reject_norm: Positive | None = None
    pre: tuple[Literal["nnm", "bucketing"], ...] = ()
    buckets: Annotated[int, Field(ge=2)] = 2
    reference: Name | None = None
    buffers: Literal["average", "local"] = "average"

    @model_validator(mode="after")
    def _each_in_its_place(self) -> AggregatorPlan:
        for key in self.parameters:
            if key in type(self).model_fields:
                raise ValueError(f"{key} is no key of parameters: write it beside name")
        return self


class SecureAggregation(Settings):
    """What the sites' updates must be for a secure sum, and how many sites there must be in it.

    Each site clips its update to the L2 norm ``clip_norm`` and makes it whole numbers of ``scale`` steps per
    unit; unset, as many as a sum in 32-bit words has room for. A site with ``examples_per_weight`` examples
    weighs 1 in a weighted mean, one with 1024 times as many or more weighs 1024. No stage goes on with fewer than
    ``min_sites`` sites, of which ``colluders`` may be in league with the server; unset, a fifth, rounded up.
    A site's own policy may demand more of all of this.

    Groups have ``group_size`` sites or more, and are drawn once for a run or anew for every round
    (``regroup``). Of the sites that share sketches or updates, ``wrong_holders`` may answer falsely and
    ``dropouts`` not at all; unset, as many lie as the rule withstands, and as many sketches may be missing as the
    number of sites leaves room for, but a twentieth of the updates. With ``strict`` each proves that its sketch is
    short; an update always is. It is shared in ``packing`` blocks; unset, as many as there is room for.
    With ``noise`` every site adds its part of what makes the mean differentially private:
    its standard deviation in the sum is ``noise_multiplier`` times ``clip_norm``.
    """

    clip_norm: Positive = 10.0
    scale: Positive | None = None
    examples_per_weight: PositiveInt = 1
    min_sites: Annotated[int, Field(ge=2)] = 5
    colluders: Annotated[int, Field(ge=0)] | None = None
    group_size: Annotated[int, Field(ge=2)] = 5
    regroup: Literal["run", "round"] = "run"
    wrong_holders: Annotated[int, Field(ge=0)] | None = None
    dropouts: Annotated[int, Field(ge=0)] | None = None
    strict: bool = False
    packing: PositiveInt | None = None
    noise: Literal["none", "skellam", "discrete-gaussian"] = "none"
    noise_multiplier: NonNegative = 0.0

    @model_validator(mode="after")
    def _noise_has_a_size(self) -> SecureAggregation:
        if (self.noise == "none") != (self.noise_multiplier == 0):
            raise ValueError(
                f"noise is {self.noise!r} and noise_multiplier {self.noise_multiplier}: give both or neither"
            )
        return self


class FedAvg(Settings):
    """w ← w + η Δ (McMahan et al. 2017)."""

    name: Literal["fedavg"] = "fedavg"
    learning_rate: Positive = 1.0


class FedAvgM(Settings):
    """u ← βu + Δ, w ← w + ηu (Hsu et al. 2019)."""

    name: Literal["fedavgm"]
    learning_rate: Positive = 1.0
    momentum: Decay = 0.9


class FedAdam(Settings):
    """Reddi et al. 2021, algorithm 2, ADAM; no bias correction."""

    name: Literal["fedadam"]
    learning_rate: Positive = 0.1
    beta1: Decay = 0.9
    beta2: Decay = 0.99
    tau: Positive = 1e-3


class FedYogi(Settings):
    """Reddi et al. 2021, algorithm 2, YOGI; no bias correction."""

    name: Literal["fedyogi"]
    learning_rate: Positive = 0.1
    beta1: Decay = 0.9
    beta2: Decay = 0.99
    tau: Positive = 1e-3


class FedAdagrad(Settings):
    """Reddi et al. 2021, algorithm 2, ADAGRAD; β1 = 0 as in the paper."""

    name: Literal["fedadagrad"]
    learning_rate: Positive = 0.1
    beta1: Decay = 0.0
    tau: Positive = 1e-3


ServerOptimizerPlan = Annotated[FedAvg | FedAvgM | FedAdam | FedYogi | FedAdagrad, Field(discriminator="name")]


class Evaluation(Settings):
    """Federated evaluation: how often, which metric is watched, and when it is good enough.

    A round's metrics are means over all examples of all sites, or medians over the sites where the
    aggregator withstands liars, since the sites' word chooses the best model and ends the run.
    """

    every: Annotated[int, Field(ge=0)] = 1
    metric: str = "loss"
    goal: Literal["min", "max"] | None = None
    target: float | None = None

    @property
    def larger_is_better(self) -> bool:
        """Whether a larger value of ``metric`` is better."""
        return self.goal == "max" or (self.goal is None and self.metric != "loss")

    def due(self, round: int, rounds: int) -> bool:
        """Whether the model of a round is evaluated; the last one is, unless ``every`` is 0."""
        return bool(self.every) and (round % self.every == 0 or round == rounds)

    def improves(self, value: float, best: float | None) -> bool:
        """Whether ``value`` beats the best so far."""
        return best is None or (value > best if self.larger_is_better else value < best)

    def reached(self, value: float) -> bool:
        """Whether ``value`` meets the target, if there is one."""
        if self.target is None:
            return False
        return value >= self.target if self.larger_is_better else value <= self.target

    @model_validator(mode="after")
    def _reachable(self) -> Evaluation:
        if self.target is not None and not self.every:
            raise ValueError("a target needs evaluation: set every to 1 or more")
        return self


class Plan(Settings):
    """One run, from its initial to its final model.

    ``model`` is the path of the initial model, relative to the plan; it is uploaded with the
    plan and no longer read afterwards. A round that misses its quorum is tried again up to
    ``max_failed_rounds`` times in a row before the run fails. ``protection`` says what the server
    learns of the updates: every one ("none"), their sum alone ("masks"), sums over groups ("groups"), the
    distances of sketches and the sum of those selected ("sketch"), or exact distances and one weighted sum
    ("shares"); ``secure`` says how.
    """

    name: Name
    task: Name
    model: str = ""
    rounds: Annotated[int, Field(gt=0, le=1_000_000)]
    seed: Annotated[int, Field(ge=0, lt=SEED_LIMIT)] = 0
    coordinator: Literal["synchronous"] = "synchronous"
    protection: Protection = "none"
    secure: SecureAggregation = SecureAggregation()
    max_failed_rounds: Annotated[int, Field(ge=0)] = 3
    cohort: Cohort = Cohort()
    training: LocalTraining
    aggregator: AggregatorPlan = AggregatorPlan()
    server_optimizer: ServerOptimizerPlan = FedAvg()
    evaluation: Evaluation = Evaluation()
