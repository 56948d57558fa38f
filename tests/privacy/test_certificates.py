import contextlib
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from foedus.errors import ConfigError, EnrolmentError, PeerUntrusted
from foedus.privacy import certificates as c
from foedus.privacy.anonymous import anonymous_authority_pem, anonymous_certificate
from foedus.privacy.identity import Identity
from hypothesis import given
from hypothesis import strategies as st

NOW = 1_800_000_000.0
DAY = 86_400.0


@pytest.fixture(scope="module")
def authority():
    return c.new_authority("hearts", NOW, 3650 * DAY)


def certify(authority, role="site", name="berlin", **changes):
    key = c.new_key_pem()
    options = {"now": NOW, "lifetime_seconds": 30 * DAY, **changes}
    return key, c.issue(*authority, c.new_request(key, name), Identity("hearts", role, name), **options)


names = st.from_regex(r"[a-z0-9][a-z0-9._-]{0,62}", fullmatch=True)


@given(names, st.sampled_from(["server", "site", "operator", "anonymous"]), names)
def test_an_identity_survives_its_uri(federation, role, name):
    identity = Identity(federation, role, name)
    assert Identity.parse(identity.uri) == identity


@given(st.text(max_size=80))
def test_any_text_parses_to_itself_or_is_refused(text):
    for uri in (text, f"spiffe://{text}"):
        with contextlib.suppress(ConfigError):
            assert Identity.parse(uri).uri == uri


@pytest.mark.parametrize(
    "uri",
    ["spiffe://hearts/site/berlin/x", "spiffe://hearts/site/", "spiffe://hearts/root/berlin", "http://hearts/site/b",
     "spiffe://Hearts/site/berlin", "spiffe://hearts/site/../x", "spiffe://hearts/site/berlin\n", ""],
)  # fmt: skip
def test_what_is_no_identity_is_refused(uri):
    with pytest.raises(ConfigError):
        Identity.parse(uri)


def test_an_issued_certificate_says_who_how_long_and_for_which_key(authority):
    key, certificate = certify(authority)
    assert c.read_identity(certificate) == Identity("hearts", "site", "berlin")
    assert c.verify_issued(certificate, authority[1])
    assert c.certifies(certificate, key)
    assert not c.certifies(certificate, c.new_key_pem())
    assert c.starts(certificate) == NOW - 300
    assert c.expires(certificate) == NOW + 30 * DAY
    assert c.renew_at(certificate) == NOW + 30 * DAY * 2 / 3
    parsed = x509.load_pem_x509_certificate(certificate)
    assert c.fingerprint(certificate) == parsed.fingerprint(hashes.SHA256()).hex()
    constraints = parsed.extensions.get_extension_for_class(x509.BasicConstraints)
    assert constraints.critical
    assert not constraints.value.ca


def test_the_authority_signs_certificates_and_nothing_else(authority):
    parsed = x509.load_pem_x509_certificate(authority[1])
    constraints = parsed.extensions.get_extension_for_class(x509.BasicConstraints)
    usage = parsed.extensions.get_extension_for_class(x509.KeyUsage)
    assert constraints.critical
    assert usage.critical
    assert (constraints.value.ca, constraints.value.path_length) == (True, 0)
    assert usage.value.key_cert_sign
    assert not usage.value.digital_signature
    assert c.verify_issued(authority[1], authority[1])


@pytest.mark.parametrize(
    ("role", "usage"),
    [("site", ExtendedKeyUsageOID.CLIENT_AUTH), ("operator", ExtendedKeyUsageOID.CLIENT_AUTH),
     ("server", ExtendedKeyUsageOID.SERVER_AUTH)],
)  # fmt: skip
def test_each_role_has_one_usage(authority, role, usage):
    parsed = x509.load_pem_x509_certificate(certify(authority, role)[1])
    assert list(parsed.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value) == [usage]


def test_only_servers_carry_host_names(authority):
    _, certificate = certify(authority, "server", hostnames=["fed.example.org", "10.0.0.1", "::1"])
    names = x509.load_pem_x509_certificate(certificate).extensions.get_extension_for_class(x509.SubjectAlternativeName)
    assert names.value.get_values_for_type(x509.DNSName) == ["foedus.server", "fed.example.org"]
    assert [str(ip) for ip in names.value.get_values_for_type(x509.IPAddress)] == ["10.0.0.1", "::1"]
    with pytest.raises(ConfigError, match="cannot carry host names"):
        certify(authority, "site", hostnames=["fed.example.org"])
    site = x509.load_pem_x509_certificate(certify(authority)[1])
    names = site.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    assert names.value.get_values_for_type(x509.DNSName) == []


def test_a_certificate_never_outlives_its_authority(authority):
    _, certificate = certify(authority, lifetime_seconds=10_000 * DAY)
    assert c.expires(certificate) == c.expires(authority[1])
    with pytest.raises(ConfigError, match="expired"):
        certify(authority, now=NOW + 3651 * DAY)


def test_serials_are_random(authority):
    serials = {x509.load_pem_x509_certificate(certify(authority)[1]).serial_number for _ in range(5)}
    assert len(serials) == 5
    assert min(serials) > 1 << 64


@pytest.mark.adversarial
def test_nothing_but_the_key_of_a_request_is_believed(authority):
    key = ec.generate_private_key(ec.SECP256R1())
    greedy = (
        x509.CertificateSigningRequestBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "root")]))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(
            x509.SubjectAlternativeName(
                [x509.DNSName("foedus.server"), x509.UniformResourceIdentifier("spiffe://hearts/operator/root")]
            ),
            critical=False,
        )
        .sign(key, hashes.SHA256())
        .public_bytes(serialization.Encoding.PEM)
    )
    identity = Identity("hearts", "site", "berlin")
    parsed = x509.load_pem_x509_certificate(c.issue(*authority, greedy, identity, NOW, DAY))
    names = parsed.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [name.value for name in names] == [identity.uri]
    assert not parsed.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert parsed.subject.rfc4514_string() == "CN=berlin"


@pytest.mark.adversarial
def test_malformed_requests_are_refused():
    good = c.new_request(c.new_key_pem(), "berlin")
    assert len(c.request_key_sha256(good)) == 64
    lines = good.split(b"\n")
    # Another byte in the middle of the base64 changes the subject or the key, not the signature.
    lines[1] = lines[1][:30] + (b"A" if lines[1][30:31] != b"A" else b"B") + lines[1][31:]
    for bad in (b"", b"x", good[:-60], b"\n".join(lines), good + b"#" * 20_000, c.new_key_pem()):
        with pytest.raises(EnrolmentError):
            c.request_key_sha256(bad)


@pytest.mark.adversarial
@pytest.mark.parametrize("key", [ec.generate_private_key(ec.SECP384R1()), rsa.generate_private_key(65537, 2048)])
def test_other_kinds_of_key_are_refused(key):
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "berlin")])
    request = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(key, hashes.SHA256())
    with pytest.raises(EnrolmentError, match="P-256"):
        c.request_key_sha256(request.public_bytes(serialization.Encoding.PEM))


def test_both_sides_compute_the_same_key_digest():
    key = c.new_key_pem()
    assert c.key_sha256(key) == c.request_key_sha256(c.new_request(key, "berlin"))
    assert c.key_sha256(key) != c.key_sha256(c.new_key_pem())


@pytest.mark.adversarial
def test_an_anonymous_certificate_that_claims_to_be_an_operator_is_not_believed(authority):
    """Anybody can make the anonymous authority's key, and so state any identity at all."""
    from foedus.privacy import anonymous

    forger = c.key_to_pem(anonymous._authority_key()), anonymous_authority_pem()
    _, forged = certify(forger, "operator", "mallory")
    assert c.read_identity(forged) == Identity("hearts", "operator", "mallory")
    assert c.verify_issued(forged, anonymous_authority_pem())
    assert not c.verify_issued(forged, authority[1])


@pytest.mark.adversarial
def test_an_authority_of_the_same_name_is_another_authority(authority):
    impostor = c.new_authority("hearts", NOW, DAY)
    _, forged = certify(impostor, "operator", "mallory")
    assert not c.verify_issued(forged, authority[1])
    assert c.verify_issued(forged, authority[1] + impostor[1])  # a bundle, as in a rollover
    assert not c.verify_issued(b"nonsense", authority[1])


def test_the_anonymous_authority_is_the_same_everywhere():
    first, second = (x509.load_pem_x509_certificate(anonymous_authority_pem()) for _ in range(2))
    assert first.public_key() == second.public_key()
    assert first.subject == second.subject
    assert (
        first.public_key().public_bytes(serialization.Encoding.X962, serialization.PublicFormat.CompressedPoint).hex()
        == "03eae2a89ebc56e32dbe6f1e51f2397f8cd4587435e522fed285536caade93e0dc"
    )
    key, certificate = anonymous_certificate(NOW)
    assert c.verify_issued(certificate, anonymous_authority_pem())
    assert c.read_identity(certificate).role == "anonymous"
    assert c.certifies(certificate, key)


def signed_with_names(authority, *uris):
    """A certificate by the federation's authority, made by hand."""
    start = datetime.fromtimestamp(NOW, UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([]))
        .issuer_name(x509.load_pem_x509_certificate(authority[1]).subject)
        .public_key(ec.generate_private_key(ec.SECP256R1()).public_key())
        .serial_number(1)
        .not_valid_before(start)
        .not_valid_after(start + timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.UniformResourceIdentifier(uri) for uri in uris]), critical=False
        )
    )
    signer = serialization.load_pem_private_key(authority[0], None)
    return builder.sign(signer, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


@pytest.mark.adversarial
def test_two_identities_are_none(authority):
    one, two = "spiffe://hearts/site/berlin", "spiffe://hearts/operator/ada"
    assert c.read_identity(signed_with_names(authority, one)).uri == one
    for uris in ((one, two), (two, one), (one, "https://example.org/"), (one, one)):
        with pytest.raises(PeerUntrusted):
            c.read_identity(signed_with_names(authority, *uris))


def test_a_certificate_without_exactly_one_identity_is_untrusted(authority):
    with pytest.raises(PeerUntrusted):
        c.read_identity(authority[1])
    with pytest.raises(PeerUntrusted):
        c.read_identity(b"nonsense")
    with pytest.raises(ConfigError):
        c.expires(b"nonsense")
    with pytest.raises(ConfigError, match="private key"):
        c.key_sha256(b"nonsense")
