"""What an operator is shown and signs, whatever the server says."""

from __future__ import annotations

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from foedus.errors import ConfigError, ProtocolError
from foedus.privacy.secagg.roster import signed_roster
from foedus.privacy.secagg.signing import site_id
from foedus.protos.v1 import operations_pb2
from foedus.server.config import ServerHome
from foedus.server.credentials import OperatorHome
from foedus.server.roster_key import make_roster_key, public_roster_key, read_roster_key
from foedus.server.roster_signing import compare, publish

OPERATOR, OTHER = (Ed25519PrivateKey.from_private_bytes(seed * 32) for seed in (b"o", b"p"))
PUBLIC = OPERATOR.public_key().public_bytes_raw()
A, B, C = b"a" * 32, b"b" * 32, b"c" * 32


def member(name, key=b"", state="active", role="site"):
    return operations_pb2.Site(name=name, role=role, state=state, signing_key=key)


def drawn(*members, published=None):
    return compare("hearts", PUBLIC, members, published)


def roster(version, *keys, by=OPERATOR, federation="hearts"):
    return signed_roster(by, federation, version, keys)


def shown(draft):
    return [(listed.name, listed.public_key, listed.change) for listed in draft.listed]


def test_the_first_roster():
    draft = drawn(
        member("paris", B),
        member("berlin", A),
        member("rome"),
        member("oslo", C, "pending"),
        member("ada", role="operator"),
    )
    assert (draft.version, draft.federation, draft.changes) == (1, "hearts", True)
    assert shown(draft) == [("berlin", A, "new"), ("paris", B, "new")]
    assert draft.listed[0].key_id == site_id(A).hex()
    assert draft.public_keys == (A, B)
    assert draft.without_key == ("rome",)


def test_what_changed_since():
    published = roster(4, A, B)
    draft = drawn(member("berlin", A), member("paris", B, "revoked"), member("rome", C), published=published)
    assert draft.version == 5
    assert shown(draft) == [("berlin", A, ""), ("rome", C, "new"), ("paris", B, "gone")]
    assert draft.public_keys == (A, C)
    replaced = drawn(member("berlin", C), member("paris", B), published=published)
    assert shown(replaced) == [("berlin", C, "new"), ("paris", B, ""), ("?", A, "gone")]
    assert not drawn(member("berlin", A), member("paris", B), published=published).changes


@pytest.mark.adversarial
@pytest.mark.parametrize("published", [roster(7, A, by=OTHER), roster(7, A, federation="lungs")])
def test_a_roster_of_another_key_makes_no_key_known(published):
    """Else a server could show a roster of its own, and an invented key would pass as one that was compared."""
    draft = drawn(member("berlin", A), published=published)
    assert shown(draft) == [("berlin", A, "new")]
    assert (draft.version, draft.in_force, draft.changes) == (8, False, True)


@pytest.mark.adversarial
@pytest.mark.parametrize(
    ("members", "published", "error"),
    [
        ([member("berlin", A), member("paris", A)], None, ProtocolError),
        ([member("berlin", A[:-1])], None, ProtocolError),
        ([member("berlin", A, "blessed")], None, ProtocolError),
        ([member("berlin\x1b[1A", A)], None, ConfigError),  # would write over another line of the terminal
        ([member("", A)], None, ConfigError),
        ([], roster(2**64 - 1, by=OTHER), ProtocolError),
    ],
)
def test_a_server_that_lists_nonsense(members, published, error):
    with pytest.raises(error):
        drawn(*members, published=published)


def test_an_empty_roster_is_signed_over_one_of_another_key():
    """Else a roster that nobody here has signed would stay in force."""
    draft = drawn(published=roster(3, A, by=OTHER))
    assert (draft.version, draft.public_keys, draft.changes) == (4, (), True)
    assert not drawn(published=roster(3)).changes


class Server:
    """Answers a publication with what a test says."""

    def __init__(self, answer):
        self.answer, self.asked = answer, []

    async def PublishRoster(self, request):  # noqa: N802
        self.asked.append(request)
        return self.answer(request)


async def test_publishing_twice_sends_the_same_bytes():
    server = Server(lambda request: request)
    draft = drawn(member("berlin", A))
    made = [await publish(server, draft, OPERATOR) for _ in range(2)]
    assert made[0] == made[1] == roster(1, A)
    assert server.asked[0] == server.asked[1]
    made[0].verify(PUBLIC, federation="hearts", at_least=1)


@pytest.mark.adversarial
async def test_a_server_that_answers_with_another_roster():
    server = Server(lambda request: operations_pb2.Roster(version=1, signed=roster(1).to_bytes()))
    with pytest.raises(ProtocolError, match="another roster"):
        await publish(server, drawn(member("berlin", A)), OPERATOR)


@pytest.fixture
def server_home(tmp_path):
    home = ServerHome(tmp_path / "server")
    home.operator.mkdir(parents=True)
    home.config.write_text("")
    return home


def test_the_roster_key_is_made_once_and_private(tmp_path):
    path = tmp_path / "apart" / "roster.key"
    assert make_roster_key(path)
    assert path.stat().st_mode & 0o777 == 0o600
    key = path.read_bytes()
    assert not make_roster_key(path)
    assert path.read_bytes() == key
    read_roster_key(path)


@pytest.mark.adversarial
def test_no_roster_key_inside_a_servers_home(server_home, tmp_path, monkeypatch):
    (tmp_path / "link").symlink_to(server_home.operator)
    monkeypatch.chdir(server_home.operator)
    inside = server_home.operator / "roster.key"
    for path in (inside, tmp_path / "link" / "roster.key", type(inside)("roster.key")):
        with pytest.raises(ConfigError, match="can invent sites"):
            make_roster_key(path)
    assert not inside.exists()
    assert make_roster_key(inside, on_server_anyway=True)


def test_which_roster_key_goes_into_an_invitation(tmp_path):
    operator, elsewhere = OperatorHome(tmp_path / "operator"), tmp_path / "key"
    assert public_roster_key(None, operator) == b""
    with pytest.raises(ConfigError, match="there is no roster key"):
        public_roster_key(elsewhere, operator)
    make_roster_key(operator.roster_key)
    make_roster_key(elsewhere)
    own = public_roster_key(None, operator)
    assert own == read_roster_key(operator.roster_key).public_key().public_bytes_raw()
    assert public_roster_key(elsewhere, operator) not in (own, b"")
    elsewhere.write_text("nonsense")
    with pytest.raises(ConfigError, match="is not an unencrypted PEM key"):
        public_roster_key(elsewhere, operator)
