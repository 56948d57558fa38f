import tomllib

import pytest
from foedus.client_sdk.config import SiteConfig, TaskEntry, site_toml, toml_value
from foedus.client_sdk.home import Credentials, SiteHome
from foedus.configuration import load
from foedus.errors import ConfigError
from hypothesis import given
from hypothesis import strategies as st

MINIMAL = 'name = "berlin"\nfederation = "hearts"\nserver = "fed.example.org:8443"\n'


@pytest.fixture
def read(tmp_path):
    def read(text, model=SiteConfig):
        path = tmp_path / "site.toml"
        path.write_text(text)
        return load(model, path)

    return read


def test_a_full_site(read):
    config = read(
        MINIMAL
        + 'log_level = "debug"\nkeep_free_bytes = 5\n'
        + '[tasks.heart]\nentry = "clinic.tasks:make"\nparameters = { rows = 3, path = "x.csv" }\n'
        + '[tasks.lung]\nentry = "code/lung.py:task"\n'
    )
    assert config.tasks["heart"].parameters == {"rows": 3, "path": "x.csv"}
    assert config.tasks["lung"].entry == "code/lung.py:task"
    assert config.keep_free_bytes == 5


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (MINIMAL.replace("8443", "port"), "server: 'fed.example.org:port' is not the address"),
        (MINIMAL.replace("berlin", "Berlin!"), "name"),
        (MINIMAL + "tokens = 1\n", "tokens is not a known key"),
        (MINIMAL + '[tasks.heart]\nentry = "clinic.tasks"\n', "tasks.heart.entry"),
        ("", "name is missing"),
    ],
)
def test_mistakes_are_named(read, text, message):
    with pytest.raises(ConfigError, match=r"site\.toml") as caught:
        read(text)
    assert message in str(caught.value)


def test_a_written_site_reads_back(read):
    odd = TaskEntry(entry='odd "folder"\\t.py:task')
    config = read(site_toml("berlin", "hearts", "h:1", {"heart": odd, "a.b": TaskEntry(entry="m:t")}))
    assert config.tasks["heart"].entry == 'odd "folder"\\t.py:task'
    assert config.tasks["a.b"].entry == "m:t"
    assert read(site_toml("berlin", "hearts", "h:1", {})).tasks == {}


text = st.text(st.characters(exclude_categories=["Cs"]))
values = st.recursive(
    text | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False),
    lambda inner: st.lists(inner) | st.dictionaries(text, inner),
    max_leaves=8,
)


@given(st.dictionaries(text, values))
def test_any_parameters_survive_being_written(parameters):
    entry = TaskEntry(entry="m:t", parameters=parameters)
    written = tomllib.loads(site_toml("berlin", "hearts", "h:1", {"heart": entry}))
    assert SiteConfig.model_validate(written).tasks["heart"] == entry


def test_what_toml_cannot_hold_is_refused():
    with pytest.raises(ConfigError, match="None cannot be written"):
        toml_value({"x": [None]})


def test_a_home_is_private_and_says_when_it_is_not_enrolled(tmp_path):
    home = SiteHome(tmp_path / "home")
    home.create()
    assert {p.name for p in home.path.iterdir()} == {"outbox", "models", "checkpoints"}
    assert home.path.stat().st_mode & 0o077 == 0
    with pytest.raises(ConfigError, match="not enrolled"):
        home.credentials()
    for path in (home.authority, home.certificate, home.key):
        path.write_bytes(path.name.encode())
    assert home.credentials() == Credentials(b"authority.pem", b"certificate.pem", b"key.pem")
    assert "key.pem" not in repr(home.credentials())
