import pytest
from foedus.aggregators.kernel_choice import best_kernel
from foedus.client_sdk import doctor
from foedus.client_sdk.config import TaskEntry
from foedus.client_sdk.doctor import examine
from foedus.client_sdk.enrol import join
from foedus.client_sdk.home import Credentials, SiteHome
from foedus.client_sdk.policy import Policy
from foedus.clock import ManualClock, SystemClock
from foedus.privacy.secagg.signing import site_id

DAY = 86_400.0
TASK = """
import numpy as np
from foedus.layout import layout_of

class Heart:
    name = "heart"
    examples = [1, 2, 3]
    def layout(self): return layout_of({"w": np.zeros((4, 5), np.float32)})
    def initial(self, seed): ...
    def train(self, received, job): ...
    def evaluate(self, model): ...
    def train_data(self): return self.examples

empty = Heart()
empty.examples = []
blind = Heart()
blind.train_data = lambda: open("/nonexistent/data.csv")
"""


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch):
    for name in doctor.PROXIES:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def home(tmp_path):
    home = SiteHome(tmp_path / "home")
    home.path.mkdir()
    (home.path / "heart.py").write_text(TASK)
    return home


async def enrolled(fed, home, address):
    await join(fed.invitation(address), home, clock=SystemClock(), tasks={"heart": TaskEntry(entry="heart.py:Heart")})


def by_name(findings):
    return {finding.name: finding for finding in findings}


def bad(findings):
    return {finding.name for finding in findings if not finding.ok}


async def test_a_well_site_has_nothing_to_mend(federation, home):
    fed = federation()
    async with fed.running() as address:
        await enrolled(fed, home, address)
        findings = await examine(home, SystemClock())
    assert bad(findings) == set(), findings
    assert all(not finding.mend for finding in findings)
    named = by_name(findings)
    assert set(named) == {
        "configuration", "task heart", "policy", "kernel", "disk", "key", "certificate", "secure sums", "clock",
        "network", "server"
    }  # fmt: skip
    assert "20 trainable values" in named["task heart"].detail
    assert "3 examples" in named["task heart"].detail
    assert named["kernel"].detail.endswith(best_kernel().name)
    assert "30.0 days left" in named["certificate"].detail


async def test_an_empty_home_says_what_to_do_first(tmp_path):
    findings = await examine(SiteHome(tmp_path), SystemClock())
    assert bad(findings) == {"configuration"}


async def test_a_home_without_certificate(home):
    home.config.write_text('name = "berlin"\nfederation = "hearts"\nserver = "h:1"\n')
    findings = await examine(home, SystemClock())
    assert bad(findings) == {"tasks", "policy", "certificate"}
    assert all(finding.mend for finding in findings if finding.name in ("tasks", "certificate"))


async def test_everything_wrong_at_once_is_all_reported(federation, home):
    fed = federation()
    async with fed.running() as address:
        await enrolled(fed, home, address)
    home.key.chmod(0o644)
    (home.path / "heart.py").write_text("import nothing_of_this_name")
    home.config.write_text(home.config.read_text() + "keep_free_bytes = 1000000000000000000\n")
    text = home.config.read_text().splitlines()
    home.config.write_text("\n".join([text[-1], *text[:-1]]))
    findings = await examine(home, SystemClock())
    assert bad(findings) == {"task heart", "policy", "disk", "key", "network", "server"}
    assert all(finding.mend for finding in findings if not finding.ok and finding.name != "task heart")
    assert by_name(findings)["key"].mend == f"chmod 600 {home.key}"


async def test_a_server_that_drains_and_a_server_that_is_not_ours(federation, home):
    fed, other = federation(), federation()
    async with fed.running() as address:
        await enrolled(fed, home, address)
        fed.serving = False
        finding, _ = await doctor.check_server(address, home.credentials(), SystemClock())
        assert (finding.ok, finding.detail) == (False, "it answers, but takes no work now")
    async with other.running() as address:
        finding, _ = await doctor.check_server(address, home.credentials(), SystemClock())
        assert not finding.ok
        assert "same federation" in finding.mend


async def test_a_name_that_does_not_resolve():
    finding = await doctor.check_port("no-such-host.invalid:8443")
    assert not finding.ok
    assert "does not resolve" in finding.detail


@pytest.mark.parametrize(
    ("entry", "detail"),
    [("heart.py:empty", "0 examples"), ("heart.py:blind", "FileNotFoundError"), ("heart.py:nothing", "no attribute")],
)
def test_tasks_that_cannot_train(home, entry, detail):
    findings, codes, _ = doctor.check_tasks({"heart": TaskEntry(entry=entry)}, home.path)
    assert not findings[0].ok
    assert detail in findings[0].detail
    assert ("heart" in codes) == (entry == "heart.py:empty")


def test_the_policy_must_allow_the_code_there_is():
    def policy(code):
        return Policy.model_validate({"tasks": {"heart": {"code_sha256": code}}})

    codes = {"heart": "ab" * 32}
    assert doctor.check_policy(policy("ab" * 32), codes).ok
    assert doctor.check_policy(policy("any"), codes).ok
    changed = doctor.check_policy(policy("cd" * 32), codes)
    assert not changed.ok
    assert "ab" * 32 in changed.mend
    denied = doctor.check_policy(Policy(), codes)
    assert "[tasks.heart]" in denied.mend
    assert not doctor.check_policy(policy("any"), {}).ok


@pytest.mark.parametrize(
    ("mode", "ok"), [(0o600, True), (0o400, True), (0o640, False), (0o604, False), (0o620, False), (0o601, False)]
)
def test_a_key_is_its_owners_alone(tmp_path, mode, ok):
    key = tmp_path / "key.pem"
    key.touch()
    key.chmod(mode)
    finding = doctor.check_key(key)
    assert (finding.ok, bool(finding.mend)) == (ok, not ok)
    assert not doctor.check_key(tmp_path / "none.pem").ok


async def test_secure_sums(federation, home):
    """Without a roster key a site is well, and is told what that means; with one, all must be there and private."""

    def check(*, required=False):
        finding = doctor.check_signing(home, required=required)
        assert finding.ok != bool(finding.mend)
        return finding

    fed = federation()
    assert (check().ok, check().detail) == (True, "none for this site: it has no signing.pem")
    assert not check(required=True).ok
    async with fed.running() as address:
        await enrolled(fed, home, address)
        without = check()
        assert not check(required=True).ok
        await join(fed.invitation(address, roster_key=bytes(32)), home, clock=SystemClock())
    id = site_id(fed.signing_keys[0]).hex()
    assert without.ok
    assert "no roster key is pinned" in without.detail
    assert id in without.detail
    pinned = check(required=True)
    assert (pinned.ok, pinned.detail) == (True, f"this site signs as {id}, rosters are signed by {'00' * 32}")
    home.signing_key.chmod(0o640)
    readable = check()
    assert (readable.ok, readable.mend) == (False, f"chmod 600 {home.signing_key}")
    home.signing_key.write_bytes(b"nonsense")
    assert not check().ok
    home.signing_key.unlink()
    assert not check().ok
    home.roster_key.write_text("nonsense")
    assert not check().ok


async def test_a_policy_that_wants_every_update_protected_needs_a_roster_key(federation, home):
    fed = federation()
    async with fed.running() as address:
        await enrolled(fed, home, address)
        home.policy.write_text('protections = ["masks"]\n' + home.policy.read_text())
        assert bad(await examine(home, SystemClock())) == {"secure sums"}
        await join(fed.invitation(address, roster_key=bytes(32)), home, clock=SystemClock())
        assert bad(await examine(home, SystemClock())) == set()


def test_disk_is_compared_exactly():
    assert doctor.check_disk(10, 10).ok
    assert not doctor.check_disk(9, 10).ok


def test_certificates(federation):
    fed = federation()
    key, certificate = fed.certify("site", "berlin")
    good = Credentials(fed.pem, certificate, key)
    assert doctor.check_certificate(good, fed.now).ok
    for credentials, detail in (
        (Credentials(federation().pem, certificate, key), "not issued by"),
        (Credentials(fed.pem, certificate, fed.certify("site", "x")[0]), "another key"),
        (Credentials(fed.pem, b"x", key), "no identity"),
        (Credentials(fed.pem, certificate, b"x"), "private key"),
    ):
        finding = doctor.check_certificate(credentials, fed.now)
        assert not finding.ok
        assert detail in finding.detail
    late = doctor.check_certificate(good, fed.now + 31 * DAY)
    assert (late.ok, "expired 1.0 days ago" in late.detail) == (False, True)


def test_a_clock_that_is_behind_the_certificate(federation):
    """All that can be said when the server does not answer."""
    fed = federation()
    _, certificate = fed.certify("site", "berlin")
    assert doctor.check_clock(certificate, fed.now, None).ok
    behind = doctor.check_clock(certificate, fed.now - 3900, None)
    assert not behind.ok
    assert behind.detail.startswith("at least 3600 s") or behind.detail.startswith("at least 3599 s")


@pytest.mark.parametrize(
    ("asked", "answered", "ok", "detail"),
    [
        (1000.0, 1000.0, True, "0.0 s behind the server's, give or take 0.0 s"),
        (1060.0, 1060.0, True, "60.0 s ahead of"),
        (1061.0, 1061.0, False, "61.0 s ahead of"),
        (939.0, 939.0, False, "61.0 s behind"),
        (1056.0, 1066.0, True, "61.0 s ahead of the server's, give or take 5.0 s"),  # it may be the way there
        (1300.0, 1310.0, False, "305.0 s ahead of"),
    ],
)
def test_a_clock_is_compared_with_the_servers(asked, answered, ok, detail):
    skew = doctor.measured_skew("1000.000", asked, answered)
    finding = doctor.check_clock(b"never read", answered, skew)
    assert (finding.ok, bool(finding.mend)) == (ok, not ok)
    assert detail in finding.detail


@pytest.mark.parametrize("told", [None, "", "noon", "nan", "inf", b"\xff"])
def test_a_server_that_does_not_tell_the_time(told):
    assert doctor.measured_skew(told, 1.0, 2.0) is None


async def test_behind_a_proxy_only_grpc_dials(federation, home, monkeypatch):
    fed = federation()
    async with fed.running() as address:
        await enrolled(fed, home, address)
        monkeypatch.setenv("https_proxy", "http://127.0.0.1:1")
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        findings = await examine(home, ManualClock(fed.now))
    assert "network" not in by_name(findings)
    assert bad(findings) == set()
