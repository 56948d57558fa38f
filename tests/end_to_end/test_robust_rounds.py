"""Five real sites, one of them malicious: what the model becomes, and where it is seen who was left out."""

from __future__ import annotations

import asyncio
import json
import logging
from contextlib import asynccontextmanager
from dataclasses import replace

import numpy as np
import pytest
from click.testing import CliRunner
from foedus.aggregators import rule
from foedus.cli import root
from foedus.errors import ConfigError, NotApproved
from foedus.protos.messages import Refusal
from foedus.protos.v1 import operations_pb2
from foedus.protos.wire import site_message_to_pb, work_from_pb
from foedus.server.gauges import observe_sites
from foedus.server.report import render
from foedus.server.run_cli import details
from loopback import RawSite, loopback, plan, typed
from real_sites import TASK, enrolled, serving

HONEST = [1.0, -2.0, 3.0, 0.5]
UPDATES = {
    "a": HONEST,
    "b": [1.25, -2.0, 3.0, 0.5],
    "c": [1.0, -2.25, 3.0, 0.5],
    "d": [1.0, -2.0, 3.25, 0.5],
    "eve": [-10 * value for value in HONEST],
}
HUGE = [100 * value for value in HONEST]
ROWS_ND = np.array(list(UPDATES.values()), np.float32)
LOWEST_D, HIGHEST_D = ROWS_ND[:4].min(axis=0), ROWS_ND[:4].max(axis=0)


def source(update, examples=10, metrics="'loss': 0.5"):
    """A task that adds the same update in every round."""
    return TASK.replace('+ 1\n    return arrays, 10, {"loss": 0.5}', f"+ np.array({update}, np.float32)").replace(
        "np.float32)\n\ndef evaluate", f"np.float32)\n    return arrays, {examples}, {{{metrics}}}\n\ndef evaluate"
    )


def robust_plan(rounds=1, quorum=5, count=5, **aggregator):
    cohort = {"count": count, "quorum": quorum, "deadline_seconds": 60}
    return plan(rounds=rounds, cohort=cohort, aggregator=aggregator)


@asynccontextmanager
async def five_sites(folder, sources=None, **settings):
    """A federation with the five sites; ``sources`` replace the tasks of some, or add sites."""
    async with loopback(folder, **settings) as local:
        tasks = {name: source(update) for name, update in UPDATES.items()} | (sources or {})
        homes = [await enrolled(local, name, source=task) for name, task in tasks.items()]
        async with serving(local, *homes):
            yield local


async def outcome(local, **wanted):
    return await local.ended(await local.submit(robust_plan(**wanted)))


def trained(local, shown):
    assert shown.state == "finished", shown.reason
    return local.model(shown.last_sha256).trainable_D


def parts(shown, round=1):
    return {p.site: p for p in shown.rounds[round - 1].participations if p.phase == 1}


def left_out(shown, round=1):
    return sorted(site for site, part in parts(shown, round).items() if part.code == "LeftOut")


# The model


async def test_the_mean_follows_the_liar_and_multi_krum_the_others(tmp_path):
    async with five_sites(tmp_path) as local:
        mean_D = trained(local, await outcome(local))
        np.testing.assert_allclose(mean_D, ROWS_ND.mean(axis=0), rtol=1e-6)
        assert mean_D[0] < 0 < LOWEST_D[0]
        shown = await outcome(local, rounds=3, name="multi-krum", f=1)
        model_D = trained(local, shown)
    np.testing.assert_array_less(3 * LOWEST_D - 1e-6, model_D)
    np.testing.assert_array_less(model_D, 3 * HIGHEST_D + 1e-6)
    for round in (1, 2, 3):
        assert "eve" in left_out(shown, round)
        assert len(left_out(shown, round)) == 3  # of 5 it averages n - f - 2


RULES = [
    {"name": "krum", "f": 1},
    {"name": "median"},
    {"name": "trimmed-mean", "f": 1},
    {"name": "meamed", "f": 1},
    {"name": "geometric-median"},
    {"name": "mda", "f": 1},
    {"name": "dnc", "f": 1},
    {"name": "foolsgold"},
    {"name": "centered-clipping", "clip": 1.0, "iterations": 3},
    {"name": "krum", "f": 1, "pre": ["nnm"]},
    {"name": "median", "f": 1, "pre": ["bucketing"], "buckets": 2},
    {"name": "mean", "clip_norm": 4.0},
    {"name": "median", "reject_norm": 10.0},
]


async def test_every_rule_gives_on_the_disk_what_it_gives_in_memory(tmp_path):
    async with five_sites(tmp_path) as local:
        for wanted in RULES:
            shown = await outcome(local, **wanted)
            model_D = trained(local, shown)
            if "bucketing" in wanted.get("pre", ()) or wanted["name"] == "dnc":
                # What is drawn hangs on the run; a liar may own one bucket of three, never the median's direction.
                assert (model_D * HONEST > 0).all(), wanted
                continue
            parameters = {key: value for key, value in wanted.items() if key != "name"}
            history = ROWS_ND if wanted["name"] == "foolsgold" else None
            expected = rule(wanted["name"], **parameters)(ROWS_ND, reference=history)
            np.testing.assert_allclose(model_D, expected.update_D, rtol=1e-6, err_msg=str(wanted))
            sites = list(UPDATES)
            assert left_out(shown) == [sites[index] for index in expected.rejected], wanted
            for site, part in parts(shown).items():
                index = sites.index(site)
                assert part.HasField("score") == (expected.scores is not None)
                if expected.scores is not None and np.isfinite(expected.scores[index]):
                    assert part.score == pytest.approx(float(expected.scores[index]))
                if expected.weights_N is not None:
                    assert part.weight == pytest.approx(float(expected.weights_N[index]))


async def test_an_update_that_is_too_long_is_refused_by_name_and_the_rule_expects_one_liar_less(tmp_path):
    async with five_sites(tmp_path, {"eve": source(HUGE)}) as local:
        shown = await outcome(local, name="trimmed-mean", f=1, reject_norm=10.0)
        np.testing.assert_allclose(trained(local, shown), ROWS_ND[:4].mean(axis=0), rtol=1e-6)  # f is 0 now
        assert left_out(shown) == ["eve"]
        assert "its norm is" in parts(shown)["eve"].reason
        assert "at most 10" in parts(shown)["eve"].reason


async def test_a_claim_of_many_examples_weighs_nothing(tmp_path):
    greedy = {"eve": source(UPDATES["eve"], examples=10**12)}
    async with five_sites(tmp_path, greedy) as local:
        shown = await outcome(local, name="median")
        np.testing.assert_array_equal(trained(local, shown), np.median(ROWS_ND, axis=0))
        for wanted in ({"name": "multi-krum", "f": 1}, {"name": "geometric-median"}):
            parameters = {key: value for key, value in wanted.items() if key != "name"}
            expected_D = rule(wanted["name"], **parameters)(ROWS_ND).update_D
            np.testing.assert_allclose(trained(local, await outcome(local, **wanted)), expected_D, rtol=1e-6)


@pytest.mark.parametrize(("name", "expected"), [("mda", ["eve"]), ("multi-krum", ["c", "d"])])
async def test_a_claim_of_no_examples_is_no_disguise_where_it_costs_no_say(tmp_path, name, expected):
    modest = {"eve": source(UPDATES["eve"], examples=0)}
    async with five_sites(tmp_path, modest) as local:
        shown = await outcome(local, name=name, f=1)
        assert shown.state == "finished", shown.reason
        assert left_out(shown) == expected
        assert parts(shown)["eve"].weight == 0
        assert local.fed.registry.standing("eve").rejection_rate == pytest.approx(0.1 if "eve" in expected else 0)


async def test_a_metric_that_one_site_alone_reports_stops_nothing(tmp_path):
    odd = {"b": source(UPDATES["b"], metrics="'loss': 0.25, 'novel': 7.0"), "d": source(UPDATES["d"], metrics="")}
    async with five_sites(tmp_path, odd) as local:
        shown = await outcome(local, rounds=2, name="median")
    assert shown.state == "finished"
    assert dict(shown.rounds[1].training_metrics) == {"loss": (0.5 * 3 + 0.25) / 4, "novel": 7.0}


async def test_the_metrics_of_who_was_left_out_do_not_count(tmp_path):
    boast = {"eve": source(UPDATES["eve"], metrics="'loss': -1e9")}
    async with five_sites(tmp_path, boast) as local:
        shown = await outcome(local, name="mda", f=1)
    assert left_out(shown) == ["eve"]
    assert dict(shown.rounds[0].training_metrics) == {"loss": 0.5}


# Where it is seen


async def test_the_rejected_site_is_seen_everywhere(tmp_path, caplog):
    async with five_sites(tmp_path) as local:
        run = await local.submit(robust_plan(name="mda", f=1))
        with caplog.at_level(logging.INFO):
            event = await local.happened(run, "round_committed")
            shown = await local.ended(run)
        assert "left out: eve (score " in event.detail
        data = details(shown)
        (told,) = [p for p in data["rounds"][0]["participations"] if p["site"] == "eve"]
        others = [p["score"] for p in data["rounds"][0]["participations"] if p["site"] != "eve"]
        assert (told["verdict"], told["code"], told["reason"]) == ("rejected", "LeftOut", "mda left it out")
        assert (told["weight"], told["num_examples"]) == (0.0, 10)
        assert told["score"] > max(others)
        page = render(data)
        assert "eve was left out of 1 of 1 rounds" in page
        assert "LeftOut mda left it out" in page
        await observe_sites(local.fed)
        metrics = local.fed.metrics.page().decode()
        assert 'foedus_updates_left_out_total{aggregator="mda"} 1.0' in metrics
        assert 'foedus_updates_total{reason="",verdict="accepted"} 5.0' in metrics
        assert 'foedus_site_rejection_rate{site="a"} 0.0' in metrics
        assert 'foedus_site_rejection_rate{site="eve"} 0.09999' in metrics
        sites = (await local.operator().ListSites(operations_pb2.ListSitesRequest())).sites
        stand = {site.name: (round(site.rejection_rate, 6), site.rounds_judged) for site in sites}
        assert stand == {"eve": (0.1, 1), "operator": (0.0, 0)} | dict.fromkeys("abcd", (0.0, 1))
        (fields,) = journalled(local, "round_committed")
        assert fields["left_out"] == {"eve": told["score"]}
        assert fields["weights"]["eve"] == 0.0
        # As an operator types it.
        for words, expected in (
            (["run", "show", run], f"eve rejected (LeftOut: mda left it out; score {told['score']:.3g}, counted up to"),
            (["server", "sites", "ls"], "0.10 of 1"),
        ):
            done = await asyncio.to_thread(
                CliRunner().invoke, root, [*words, "--operator", str(local.home.operator)], catch_exceptions=False
            )
            assert expected in done.output
        # The site heard of it once, and keeps nothing.
        released = [record for record in caplog.records if record.msg == "work_released"]
        assert [(r.fields["outcome"], r.fields["reason"]) for r in released] == [("rejected", "mda left it out")]
        assert not list((tmp_path / "eve" / "outbox").glob("*.update"))


def journalled(local, name):
    rows = local.fed.runs.store.query("SELECT fields FROM events WHERE name = ? ORDER BY seq", name)
    return [json.loads(row["fields"]) for row in rows]


# Plans that cannot work


@pytest.mark.parametrize(
    ("aggregator", "quorum", "message", "mend"),
    [
        ({"name": "krum", "f": 1}, 4, "a round may close with 4 updates.*n >= 2f \\+ 3", "raise cohort.quorum"),
        ({"name": "multi-krum", "f": 1, "m": 3}, 5, "m <= n - f - 2", "raise cohort.quorum"),
        ({"name": "bulyan", "f": 1}, 5, "n >= 4f \\+ 3", "lower f"),
        ({"name": "multi-crum", "f": 1}, 5, "no aggregator 'multi-crum'", "did you mean multi-krum"),
        ({"name": "median", "clip": 1.0}, 5, "aggregator 'median'.*'clip'", "did you mean clip_norm?"),
        ({"name": "krum", "f": 1, "parameters": {"momentum": 0.5}}, 5, "aggregator 'krum'.*'momentum'", "known: f"),
        ({"name": "krum"}, 5, "aggregator 'krum'.*'f'", "set f"),
        ({"name": "dnc", "f": 1, "parameters": {"c": "x"}}, 5, "c is 'x', expected a positive number", ""),
        ({"name": "centered-clipping"}, 5, "aggregator 'centered-clipping'.*'clip'", "set clip"),
        ({"name": "fltrust"}, 5, "'fltrust' needs a reference site", "aggregator.reference names the site"),
        ({"name": "median", "reference": "a"}, 5, "'median' has no use for a reference site", "aggregator.reference"),
        ({"name": "median", "weighting": "examples"}, 5, "cannot weigh updates by examples", "leave weighting out"),
        ({"name": "krum", "f": 1, "pre": ["bucketing"]}, 5, "at least 5 updates, got 3", "raise cohort.quorum"),
    ],
)
async def test_a_plan_that_cannot_work_is_refused_when_it_is_submitted(tmp_path, aggregator, quorum, message, mend):
    async with loopback(tmp_path) as local:
        with pytest.raises(ConfigError, match=message) as caught:
            await typed(local.submit(robust_plan(quorum=quorum, **aggregator)))
        assert mend in caught.value.hint
        assert not local.fed.runs.all()


# Worthless updates: the SDK sends none, so these sites speak by hand


async def raw_sites(local, *names):
    sites = [local.site(name) for name in names]
    for site in sites:
        await site.connect()
    return sites


def row_bytes(row_D):
    return np.array([*row_D, 1.0, 1.0], np.float32).tobytes() + np.array([3], np.int64).tobytes()


async def answered(sites, rows, round=1):
    """Each site's upload in a round; the receipts."""
    receipts = []
    for site, row_D in zip(sites, rows, strict=True):
        order = await site.hear("assignment")
        assert order.work.round == round
        receipts.append(await site.upload(order, row_bytes(row_D)))
    return receipts


NAN = [np.nan, 0.0, 0.0, 0.0]


@pytest.mark.adversarial
async def test_a_worthless_update_is_refused_and_the_rule_expects_one_liar_less(tmp_path):
    async with loopback(tmp_path) as local:
        sites = await raw_sites(local, *"abcde")
        run = await local.submit(robust_plan(quorum=4, name="trimmed-mean", f=1))
        receipts = await answered(sites, [*ROWS_ND[:4], NAN])
        assert [receipt.accepted for receipt in receipts] == [True] * 4 + [False]
        assert receipts[4].code == "InvalidUpdate"
        shown = await local.ended(run)
        np.testing.assert_allclose(trained(local, shown), ROWS_ND[:4].mean(axis=0), rtol=1e-6)  # untrimmed
        assert local.fed.registry.standing("e").rejection_rate == pytest.approx(0.1)
        assert local.fed.registry.standing("a").rounds_judged == 1


@pytest.mark.adversarial
async def test_more_worthless_updates_than_the_rule_withstands_end_the_round(tmp_path):
    async with loopback(tmp_path) as local:
        sites = await raw_sites(local, *"abcde")
        run = await local.submit(robust_plan(quorum=3, name="median", f=1))
        await answered(sites, [*ROWS_ND[:3], NAN, NAN])
        shown = await local.ended(run)
        assert shown.state == "failed"
        assert "2 of 5 updates are worthless, median is to withstand 1" in shown.reason
        assert shown.last_sha256 == shown.initial_sha256
        assert local.fed.registry.standing("d").rounds_judged == 0  # nothing was committed


async def test_without_its_reference_a_round_is_tried_again(tmp_path):
    async with loopback(tmp_path) as local:
        sites = {site.name: site for site in await raw_sites(local, *"abc", "eve", "trusted")}
        cohort = {"count": 5, "quorum": 3, "deadline_seconds": 60}
        run = await local.submit(
            plan(cohort=cohort, max_failed_rounds=1, aggregator={"name": "fltrust", "f": 1, "reference": "trusted"})
        )
        for name, site in sites.items():
            order = await site.hear("assignment")
            if name == "trusted":
                site.say(site_message_to_pb(Refusal(work_from_pb(order.work), "TaskFailed", "the disk is away")))
            else:
                assert (await site.upload(order, row_bytes(UPDATES[name]))).accepted
        # Four updates are in, more than the quorum; what is missing is the one that counts.
        (receipt,) = await answered([sites["trusted"]], [HONEST])
        assert receipt.accepted
        shown = await local.ended(run)
        assert [fields["round"] for fields in journalled(local, "round_failed")] == [1]
        expected = rule("fltrust")(ROWS_ND[[0, 1, 2, 4]], reference=[HONEST])
        np.testing.assert_allclose(trained(local, shown), expected.update_D, rtol=1e-5)
        assert left_out(shown) == ["eve"]
        assert parts(shown)["eve"].score == pytest.approx(1.0)
        reference = parts(shown)["trusted"]
        assert (reference.verdict, reference.HasField("weight"), reference.HasField("score")) == (
            "accepted",
            False,
            False,
        )


# What a rule carries on


@asynccontextmanager
async def moved(folder, credentials):
    """The server started anew in the same home, and the same sites connected to it."""
    async with loopback(folder) as local:
        sites = []
        for name, known in credentials.items():
            known = replace(known, address=local.address)
            sites.append(RawSite(name, local.open(known), known))
            await sites[-1].connect()
        yield local, sites


async def began(local, run, round):
    """Wait until a round is open."""
    while (last := local.fed.rounds.last(run)) is None or last.number < round:
        await asyncio.sleep(0.01)


CARRYING = [
    {"name": "centered-clipping", "clip": 0.5},
    {"name": "foolsgold"},
]


def drifting(round):
    """Updates that change from round to round, so that what was remembered matters; two Sybils among them."""
    turn = np.array([[1, 0, 0, round], [0, 1, round, 0], [1, round, 1, 0], [-3, -3, -3, -3], [-3, -3, -3, -3.1]])
    return turn.astype(np.float32)


@pytest.mark.parametrize("aggregator", CARRYING, ids=lambda aggregator: aggregator["name"])
async def test_a_restart_forgets_nothing_that_a_rule_carries_on(tmp_path, aggregator):
    wanted = robust_plan(rounds=3, **aggregator)
    async with loopback(tmp_path) as local:
        sites = await raw_sites(local, *"abcde")
        credentials = {site.name: site.credentials for site in sites}
        undisturbed = await local.submit(wanted)
        for round in (1, 2, 3):
            await answered(sites, drifting(round), round)
        expected = await local.ended(undisturbed)
        run = await local.submit(wanted)
        await answered(sites, drifting(1))
        await began(local, run, 2)
    async with moved(tmp_path, credentials) as (local, sites):
        await answered(sites, drifting(2), 2)
        await began(local, run, 3)
    async with moved(tmp_path, credentials) as (local, sites):
        await answered(sites, drifting(3), 3)
        shown = await local.ended(run)
        assert trained(local, shown).any()
        assert shown.last_sha256 == expected.last_sha256
        assert [r.model_sha256 for r in shown.rounds] == [r.model_sha256 for r in expected.rounds]
        for round in (1, 2, 3):
            assert [(p.weight, p.score) for p in parts(shown, round).values()] == [
                (p.weight, p.score) for p in parts(expected, round).values()
            ]


async def test_foolsgold_sees_sybils_by_what_they_sent_before(tmp_path):
    async with loopback(tmp_path) as local:
        sites = await raw_sites(local, *"abcde")
        run = await local.submit(robust_plan(rounds=2, name="foolsgold"))
        for round in (1, 2):
            await answered(sites, drifting(round), round)
        shown = await local.ended(run)
        history_ND = drifting(1) + drifting(2)
        expected = rule("foolsgold")(drifting(2), reference=history_ND)
        weights = [part.weight for part in parts(shown, 2).values()]
        np.testing.assert_allclose(weights, expected.weights_N, atol=1e-6)
        assert left_out(shown, 2) == ["abcde"[index] for index in expected.rejected]
        assert {"d", "e"} <= set(left_out(shown, 2))


# Reputation


async def test_a_site_that_is_rejected_too_often_is_suspended_by_the_server(tmp_path):
    reputation = {"memory": 0.5, "suspend_above": 0.8, "after_rounds": 3}
    async with loopback(tmp_path, reputation=reputation) as local:
        sites = await raw_sites(local, *"abcde")
        credentials = {site.name: site.credentials for site in sites}
        rows = [ROWS_ND[0], ROWS_ND[1], ROWS_ND[2], ROWS_ND[3], np.float32(HUGE)]
        cohort = {"minimum": 4, "quorum": 4, "deadline_seconds": 60}
        run = await local.submit(plan(rounds=5, cohort=cohort, aggregator={"name": "mda", "f": 1}))
        for round in (1, 2, 3):
            await answered(sites, rows, round)
        release = await sites[4].hear("release")
        assert (release.work.round, release.outcome, release.reason) == (3, 2, "mda left it out")
        with pytest.raises(NotApproved, match="was suspended"):  # the session it had open
            await sites[4].hear("assignment")
        with pytest.raises(NotApproved, match="is suspended"):  # and any other
            await sites[4].connect()
        for round in (4, 5):
            await answered(sites[:4], rows[:4], round)
        shown = await local.ended(run)
        assert shown.state == "finished"
        assert [len(parts(shown, round)) for round in range(1, 6)] == [5, 5, 5, 4, 4]
        (fields,) = journalled(local, "site_suspended")
        assert fields == {
            "name": "e",
            "reason": "its rejection rate is 0.875 after 3 rounds, reputation.suspend_above is 0.8",
        }
        # The operator lets it in again: it begins anew.
        change = operations_pb2.ChangeSiteRequest(name="e", action="approve")
        site = await local.operator().ChangeSite(change)
        assert (site.state, site.rejection_rate, site.rounds_judged) == ("active", 0.0, 0)
        await sites[4].connect()
        run = await local.submit(plan(rounds=2, cohort=cohort, aggregator={"name": "mda", "f": 1}))
        for round in (1, 2):
            await answered(sites, rows, round)
        assert (await local.ended(run)).state == "finished"
        assert local.fed.registry.member("site", "e").state == "active"
        assert local.fed.registry.standing("e").rejection_rate == 0.75
    # A server that was killed between the round and the suspension finds the site when it starts.
    lower = {**reputation, "suspend_above": 0.7, "after_rounds": 2}
    async with loopback(tmp_path, reputation=lower) as local:
        assert local.fed.registry.member("site", "e").state == "suspended"
        assert [f["name"] for f in journalled(local, "site_suspended")] == ["e", "e"]
        site = RawSite("e", local.open(replace(credentials["e"], address=local.address)))
        with pytest.raises(NotApproved, match="is suspended"):
            await site.connect()


async def test_without_a_threshold_nobody_is_suspended(tmp_path):
    async with loopback(tmp_path, reputation={"memory": 0.0}) as local:
        sites = await raw_sites(local, *"abcde")
        run = await local.submit(robust_plan(rounds=2, quorum=5, name="mda", f=1))
        for round in (1, 2):
            await answered(sites, [*ROWS_ND[:4], HUGE], round)
        assert (await local.ended(run)).state == "finished"
        assert local.fed.registry.standing("e").rejection_rate == 1.0
        assert local.fed.registry.member("site", "e").state == "active"


# The site's side


async def test_a_site_that_was_away_when_it_was_left_out_hears_of_it_once(tmp_path):
    async with loopback(tmp_path) as local:
        sites = await raw_sites(local, *"abcde")
        run = await local.submit(robust_plan(name="mda", f=1))
        orders = [await site.hear("assignment") for site in sites]
        assert (await sites[4].upload(orders[4], row_bytes(HUGE))).accepted
        sites[4].say(None)
        assert await sites[4].hear() is None
        for site, order, row_D in zip(sites[:4], orders, ROWS_ND[:4], strict=False):
            assert (await site.upload(order, row_bytes(row_D))).accepted
        assert (await local.ended(run)).state == "finished"
        for site, outcome, reason in ((sites[4], 2, "mda left it out"), (sites[0], 1, "")):
            await site.connect()
            release = await site.hear("release")
            assert (release.outcome, release.reason) == (outcome, reason)
        # Sent again, the same update is refused for the same reason.
        receipt = await sites[4].upload(orders[4], row_bytes(HUGE))
        assert (receipt.accepted, receipt.code, receipt.reason) == (False, "LeftOut", "mda left it out")
