import itertools

import pytest
from foedus.client_sdk import enrol
from foedus.client_sdk.config import SiteConfig, TaskEntry
from foedus.client_sdk.enrol import join, renew
from foedus.client_sdk.home import SiteHome
from foedus.client_sdk.leave import leave
from foedus.client_sdk.loading import code_sha256
from foedus.client_sdk.policy import Policy
from foedus.clock import SystemClock
from foedus.configuration import load
from foedus.errors import ConfigError, EnrolmentError, NotApproved, PeerUntrusted, ServerUnreachable, TokenRefused
from foedus.privacy import certificates as c
from foedus.privacy.identity import Identity
from foedus.protos.invitation import Invitation

DAY = 86_400.0
ROSTER_KEY = bytes(range(32))
CLOCK = SystemClock()  # certificates are checked by TLS, which knows no other clock
TASK = """
class Heart:
    name = "heart"
    def layout(self): ...
    def initial(self, seed): ...
    def train(self, received, job): ...
    def evaluate(self, model): ...
"""


@pytest.fixture
def home(tmp_path):
    return SiteHome(tmp_path / "home")


class Sleeper:
    """Does not sleep; ``each`` runs instead."""

    def __init__(self, each=lambda: None):
        self.slept, self.each = [], each

    async def __call__(self, seconds):
        self.slept.append(seconds)
        self.each()


async def test_a_site_joins_and_has_everything_it_needs(federation, home):
    fed = federation()
    home.path.mkdir()
    (home.path / "heart.py").write_text(TASK)
    tasks = {"heart": TaskEntry(entry="heart.py:Heart")}
    async with fed.running() as address:
        text = fed.invitation(address).encode()
        identity = await join(Invitation.decode(text), home, clock=CLOCK, tasks=tasks)
    assert identity == Identity("hearts", "site", "berlin")
    assert fed.asked == [("anonymous", False)]
    credentials = home.credentials()
    assert credentials.authority_pem == fed.pem
    assert c.certifies(credentials.certificate_pem, credentials.key_pem)
    assert home.key.stat().st_mode & 0o777 == 0o600
    config = load(SiteConfig, home.config)
    assert (config.name, config.federation, config.server, config.tasks) == ("berlin", "hearts", address, tasks)
    allowed = load(Policy, home.policy).tasks
    assert {name: task.code_sha256 for name, task in allowed.items()} == {
        "heart": code_sha256("heart.py:Heart", home.path)
    }
    assert home.outbox.is_dir()


async def test_without_a_task_the_policy_allows_nothing(federation, home):
    fed = federation()
    async with fed.running() as address:
        await join(fed.invitation(address), home, clock=CLOCK)
    assert load(Policy, home.policy) == Policy()


async def test_a_site_waits_for_approval_and_shows_its_key(federation, home):
    fed, sleep, shown = federation(approve_after=3), Sleeper(), []
    async with fed.running() as address:
        await join(fed.invitation(address), home, clock=CLOCK, pending=shown.append, sleep=sleep)
    assert sleep.slept == [enrol.POLL_SECONDS] * 3
    assert shown == [fed.bound] == [c.key_sha256(home.key.read_bytes())]


async def test_waiting_outlasts_a_restart_of_the_server(federation, home):
    fed = federation(approve_after=1)
    attempts = []

    def connect(address, **credentials):
        attempts.append(address)
        # The second question finds nobody.
        return enrol.secure_channel("127.0.0.1:1" if len(attempts) == 2 else address, **credentials)

    async with fed.running() as address:
        await join(fed.invitation(address), home, clock=CLOCK, sleep=Sleeper(), connect=connect)
    assert len(attempts) == 3


async def test_nobody_at_the_address(federation, home):
    fed = federation()
    async with fed.running() as address:
        pass
    with pytest.raises(ServerUnreachable):
        await join(fed.invitation(address), home, clock=CLOCK, sleep=Sleeper())


async def test_an_operator_gets_an_address_instead_of_a_site(federation, home):
    fed = federation()
    fed.certify_as = ("operator", "ada")
    async with fed.running() as address:
        identity = await join(fed.invitation(address, name="ada", role="operator"), home, clock=CLOCK)
    assert identity.role == "operator"
    assert home.address.read_text() == f"{address}\n"
    assert not home.config.exists()
    assert fed.signing_keys == [b""]  # operators take part in no sum
    assert home.signer() is None


async def test_a_site_makes_a_signing_key_and_tells_its_public_half(federation, home):
    fed = federation()
    async with fed.running() as address:
        await join(fed.invitation(address), home, clock=CLOCK)
        assert home.signing_key.stat().st_mode & 0o777 == 0o600
        assert fed.signing_keys == [home.signer().public_key().public_bytes_raw()]
        assert home.pinned_roster_key() is None
        before = home.signing_key.read_bytes()
        await join(fed.invitation(address), home, clock=CLOCK)
        async with home.credentials().channel(address) as channel:
            await renew(channel, home)
    assert home.signing_key.read_bytes() == before
    assert fed.signing_keys[0] == fed.signing_keys[1]
    assert len(fed.signing_keys) == 2


@pytest.mark.adversarial
async def test_the_roster_key_is_pinned_once(federation, home):
    fed = federation()
    async with fed.running() as address:
        await join(fed.invitation(address), home, clock=CLOCK)
        await join(fed.invitation(address, roster_key=ROSTER_KEY), home, clock=CLOCK)
        assert home.pinned_roster_key() == ROSTER_KEY
        asked = len(fed.asked)
        with pytest.raises(ConfigError, match=f"has pinned {ROSTER_KEY.hex()}"):
            await join(fed.invitation(address, roster_key=bytes(32)), home, clock=CLOCK)
        assert len(fed.asked) == asked
        await join(fed.invitation(address), home, clock=CLOCK)  # an invitation without one takes nothing away
        async with home.credentials().channel(address) as channel:
            await renew(channel, home)
    assert home.pinned_roster_key() == ROSTER_KEY


async def test_leaving_takes_the_signing_key_and_the_pin_along(federation, home):
    fed = federation()
    async with fed.running() as address:
        await join(fed.invitation(address, roster_key=ROSTER_KEY), home, clock=CLOCK)
    leave(home.path)
    assert not home.signing_key.exists()
    assert not home.roster_key.exists()


@pytest.mark.parametrize("content", ["", "ab" * 31, "AB" * 32, "zz" * 32, "ab" * 32 + "\nab", b"\xff" * 64])
def test_a_pin_that_was_damaged_is_said_to_be(home, content):
    home.path.mkdir()
    home.roster_key.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ConfigError, match="is not an Ed25519 key"):
        home.pinned_roster_key()


@pytest.mark.parametrize("content", [b"", b"nonsense", c.new_key_pem()])
def test_a_signing_key_that_was_damaged_is_said_to_be(home, content):
    home.path.mkdir()
    home.signing_key.write_bytes(content)
    with pytest.raises(ConfigError, match=r"signing\.pem is not an"):
        home.signer()


def failing(real, count, fails_at, done):
    """``real``, interrupted at its call number ``fails_at``: after it is done, or instead."""

    def write(path, content):
        number = next(count)
        if number != fails_at or done:
            real(path, content)
        if number == fails_at:
            raise KeyboardInterrupt

    return write


@pytest.mark.faults
@pytest.mark.parametrize("fails_at", range(7))  # key, authority, signing key, pin, certificate, policy, configuration
@pytest.mark.parametrize("done", [False, True])
async def test_after_a_crash_at_any_write_joining_again_continues_with_the_same_key(
    federation, home, monkeypatch, fails_at, done
):
    fed, count = federation(), itertools.count()
    async with fed.running() as address:
        with monkeypatch.context() as crash:
            for name in ("write", "write_private"):
                crash.setattr(enrol, name, failing(getattr(enrol, name), count, fails_at, done))
            with pytest.raises(KeyboardInterrupt):
                await join(fed.invitation(address, roster_key=ROSTER_KEY), home, clock=CLOCK)
        keys = {path: path.read_bytes() for path in (home.key, home.signing_key) if path.exists()}
        await join(fed.invitation(address, roster_key=ROSTER_KEY), home, clock=CLOCK)
    assert keys == {path: path.read_bytes() for path in keys}
    assert home.pinned_roster_key() == ROSTER_KEY
    assert set(fed.signing_keys) == {home.signer().public_key().public_bytes_raw()}
    assert c.certifies(home.certificate.read_bytes(), home.key.read_bytes())
    assert load(SiteConfig, home.config).name == "berlin"
    assert load(Policy, home.policy) == Policy()


async def test_joining_again_changes_no_configuration(federation, home):
    fed = federation()
    async with fed.running() as address:
        await join(fed.invitation(address), home, clock=CLOCK)
        home.policy.write_text("smallest_cohort = 3\n")
        config = home.config.read_text()
        await join(fed.invitation(address), home, clock=CLOCK)
        assert home.policy.read_text() == "smallest_cohort = 3\n"
        assert home.config.read_text() == config
        (home.path / "heart.py").write_text(TASK)
        with pytest.raises(ConfigError, match="does not have the task heart"):
            await join(fed.invitation(address), home, clock=CLOCK, tasks={"heart": TaskEntry(entry="heart.py:Heart")})


@pytest.mark.parametrize("other", ["name", "authority"])
async def test_a_home_has_one_member(federation, home, other):
    fed = federation()
    async with fed.running() as address:
        await join(fed.invitation(address), home, clock=CLOCK)
        change = {"name": "paris"} if other == "name" else {"authority_pem": federation().pem}
        with pytest.raises(ConfigError, match="already belongs"):
            await join(fed.invitation(address, **change), home, clock=CLOCK)
    assert len(fed.asked) == 1


async def test_a_task_that_cannot_be_loaded_spends_no_invitation(federation, home):
    fed = federation()
    async with fed.running() as address:
        with pytest.raises(ConfigError, match="there is no file"):
            await join(fed.invitation(address), home, clock=CLOCK, tasks={"heart": TaskEntry(entry="x.py:y")})
    assert fed.asked == []
    assert not home.path.exists()


async def test_the_servers_refusals_arrive_typed(federation, home):
    fed = federation()
    async with fed.running() as address:
        with pytest.raises(TokenRefused) as caught:
            await join(fed.invitation(address, secret="guessed"), home, clock=CLOCK)
        assert caught.value.hint == "ask again"
        fed.revoked = True
        with pytest.raises(NotApproved):
            await join(fed.invitation(address), home, clock=CLOCK)
    assert not home.certificate.exists()


@pytest.mark.adversarial
async def test_the_secret_is_never_told_to_another_server(federation, home):
    genuine, impostor = federation(), federation()
    async with impostor.running() as address:
        with pytest.raises(PeerUntrusted):
            await join(genuine.invitation(address), home, clock=CLOCK)
    assert impostor.asked == []


@pytest.mark.adversarial
async def test_a_server_that_certifies_the_wrong_thing_is_not_believed(federation, home, monkeypatch):
    fed = federation()
    stranger = federation()
    async with fed.running() as address:
        fed.certify_as = ("site", "paris")
        with pytest.raises(PeerUntrusted, match="'paris'"):
            await join(fed.invitation(address), home, clock=CLOCK)
        fed.certify_as = ("operator", "berlin")
        with pytest.raises(PeerUntrusted, match="operator"):
            await join(fed.invitation(address), home, clock=CLOCK)
        another_key = fed.certify("site", "berlin")[1]
        monkeypatch.setattr(fed, "issue", lambda *_: another_key)
        with pytest.raises(EnrolmentError, match="another key"):
            await join(fed.invitation(address), home, clock=CLOCK)
        monkeypatch.setattr(fed, "issue", lambda request, *_: stranger.issue(request, "site", "berlin"))
        with pytest.raises(PeerUntrusted, match="did not issue"):
            await join(fed.invitation(address), home, clock=CLOCK)
    assert not home.certificate.exists()


@pytest.mark.adversarial
async def test_an_invitation_without_an_authority_is_refused(federation, home):
    fed = federation()
    _, leaf = fed.certify("site", "mallory")
    for pem in (leaf, b"nonsense", b""):
        with pytest.raises(ConfigError, match="no certificate of an authority"):
            await join(fed.invitation("127.0.0.1:1", authority_pem=pem), home, clock=CLOCK)


async def test_renewing_replaces_the_certificate_and_keeps_the_key(federation, home):
    fed = federation()
    async with fed.running() as address:
        await join(fed.invitation(address), home, clock=CLOCK)
        before, key = home.certificate.read_bytes(), home.key.read_bytes()
        async with home.credentials().channel(address) as channel:
            after = await renew(channel, home)
        assert fed.asked[-1] == ("site", True)
    assert home.certificate.read_bytes() == after != before
    assert home.key.read_bytes() == key
    assert c.expires(after) == c.expires(before) + DAY
    assert c.certifies(after, key)


@pytest.mark.adversarial
async def test_a_wrong_renewal_leaves_the_old_certificate(federation, home):
    fed = federation()
    async with fed.running() as address:
        await join(fed.invitation(address), home, clock=CLOCK)
        before = home.certificate.read_bytes()
        fed.certify_as = ("site", "paris")
        async with home.credentials().channel(address) as channel:
            with pytest.raises(PeerUntrusted, match="paris"):
                await renew(channel, home)
    assert home.certificate.read_bytes() == before
