"""The federation's authority, certificate requests, and the identity in a certificate.

Keys are EC P-256, signatures ECDSA with SHA-256, everything is PEM bytes, times are Unix seconds.
The identity is the certificate's only URI, ``spiffe://FEDERATION/ROLE/NAME``; subject and common
name carry no meaning.
"""

from __future__ import annotations

import hashlib
import ipaddress
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from ..errors import ConfigError, EnrolmentError, PeerUntrusted
from .identity import Identity

# Every server certificate carries this DNS name and no other certificate does: clients ask for it
# instead of the address they dialled, so that IP addresses, tunnels and NAT names all work while
# the pinned authority does the authentication. ``protos/channel.py`` asks for the same name.
SERVER_NAME: Final = "foedus.server"

BACKDATE_SECONDS: Final = 300.0  # machines whose clocks run behind ours accept a fresh certificate
MAX_PEM_BYTES: Final = 16 * 1024
_USAGE = {
    "server": ExtendedKeyUsageOID.SERVER_AUTH,
    "site": ExtendedKeyUsageOID.CLIENT_AUTH,
    "operator": ExtendedKeyUsageOID.CLIENT_AUTH,
    "anonymous": ExtendedKeyUsageOID.CLIENT_AUTH,
}


def new_key_pem() -> bytes:
    """A fresh P-256 private key, PKCS#8, unencrypted: store it readable by its owner alone."""
    return key_to_pem(ec.generate_private_key(ec.SECP256R1()))


def key_to_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """A private key as unencrypted PKCS#8."""
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def new_authority(federation: str, now: float, lifetime_seconds: float) -> tuple[bytes, bytes]:
    """The key and self-signed certificate of a new federation's authority.

    Raises:
        ConfigError: the federation's name cannot be used.
    """
    Identity(federation, "server", "authority")
    key = ec.generate_private_key(ec.SECP256R1())
    return key_to_pem(key), self_signed(key, federation, now - BACKDATE_SECONDS, now + lifetime_seconds)


def self_signed(key: ec.EllipticCurvePrivateKey, federation: str, start: float, end: float) -> bytes:
    """An authority's certificate: it may sign certificates that sign nothing themselves."""
    name = x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, federation),
            x509.NameAttribute(NameOID.COMMON_NAME, "foedus authority"),
        ]
    )
    public = key.public_key()
    builder = (
        _builder(name, name, public, start, end)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
    )
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def new_request(key_pem: bytes, name: str) -> bytes:
    """A certificate request that proves possession of the key. ``name`` is for human readers only."""
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    request = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(_key(key_pem), hashes.SHA256())
    return request.public_bytes(serialization.Encoding.PEM)


def request_key_sha256(csr_pem: bytes) -> str:
    """The hex SHA-256 of the public key (DER) in a request: what an operator compares by telephone.

    Raises:
        EnrolmentError: the request is malformed, too large, not signed by its own key, or its key
            is not P-256.
    """
    return hashlib.sha256(_der(_request_key(csr_pem))).hexdigest()


def key_sha256(key_pem: bytes) -> str:
    """The same digest, on the side that holds the private key."""
    return hashlib.sha256(_der(_key(key_pem).public_key())).hexdigest()


def certificate_key_sha256(cert_pem: bytes) -> str:
    """The same digest, of the key in a certificate; "" if it is not a P-256 key."""
    public = _certificate(cert_pem).public_key()
    return hashlib.sha256(_der(public)).hexdigest() if isinstance(public, ec.EllipticCurvePublicKey) else ""


def issue(
    authority_key: bytes,
    authority_cert: bytes,
    csr_pem: bytes,
    identity: Identity,
    now: float,
    lifetime_seconds: float,
    hostnames: Iterable[str] = (),
) -> bytes:
    """Certify the key in a request as ``identity``; nothing else in the request is believed.

    A server's certificate serves (``serverAuth``) and names ``hostnames`` (DNS names or IP
    addresses) and ``SERVER_NAME``; every other one only calls (``clientAuth``). It is backdated by
    ``BACKDATE_SECONDS`` and never outlives the authority.

    Raises:
        EnrolmentError: as ``request_key_sha256``.
        ConfigError: hostnames for something that is no server, or the authority has expired.
    """
    names: list[x509.GeneralName] = [x509.UniformResourceIdentifier(identity.uri)]
    hostnames = list(hostnames)
    if identity.role == "server":
        names += [_host(host) for host in dict.fromkeys([SERVER_NAME, *hostnames])]
    elif hostnames:
        raise ConfigError(f"a certificate for {identity.uri} cannot carry host names")
    public, authority = _request_key(csr_pem), _certificate(authority_cert)
    end = min(now + lifetime_seconds, authority.not_valid_after_utc.timestamp())
    if end <= now:
        raise ConfigError(
            f"the federation's authority expired on {authority.not_valid_after_utc:%Y-%m-%d}",
            hint="make a new authority and let every site enrol again",
        )
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, identity.name)])
    issuer_key = authority.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    builder = (
        _builder(subject, authority.subject, public, now - BACKDATE_SECONDS, end)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([_USAGE[identity.role]]), critical=True)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(issuer_key),
            critical=False,
        )
    )
    return builder.sign(_key(authority_key), hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def verify_issued(cert_pem: bytes, authority_cert_pem: bytes) -> bool:
    """Whether the certificate's signature is by (one of) the given authorities.

    The server trusts two roots, the federation's and the anonymous one (``privacy/anonymous.py``)
    whose key anybody can make. What an anonymous certificate *says* is therefore worthless, and a
    caller is believed only if this holds for the federation's authority alone. Validity in time is
    the TLS handshake's business.
    """
    try:
        certificate = _certificate(cert_pem)
    except ConfigError:
        return False
    for authority in x509.load_pem_x509_certificates(authority_cert_pem):
        try:
            certificate.verify_directly_issued_by(authority)
        except (InvalidSignature, ValueError, TypeError, UnsupportedAlgorithm):
            continue
        return True
    return False


def read_identity(cert_pem: bytes) -> Identity:
    """The identity a certificate states; believe it only after ``verify_issued``.

    Raises:
        PeerUntrusted: it does not state exactly one identity.
    """
    try:
        extensions = _certificate(cert_pem).extensions
        names = extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        (uri,) = names.get_values_for_type(x509.UniformResourceIdentifier)
        return Identity.parse(uri)
    except (ConfigError, ValueError, x509.ExtensionNotFound, x509.DuplicateExtension) as error:
        raise PeerUntrusted(f"the certificate states no identity of a federation: {error}") from None


def expires(cert_pem: bytes) -> float:
    """When the certificate ends."""
    return _certificate(cert_pem).not_valid_after_utc.timestamp()


def starts(cert_pem: bytes) -> float:
    """When the certificate begins."""
    return _certificate(cert_pem).not_valid_before_utc.timestamp()


def renew_at(cert_pem: bytes) -> float:
    """When two thirds of the time from its issue to its end are over."""
    issued = starts(cert_pem) + BACKDATE_SECONDS
    return issued + (expires(cert_pem) - issued) * 2 / 3


def fingerprint(cert_pem: bytes) -> str:
    """The hex SHA-256 of the certificate (DER)."""
    return _certificate(cert_pem).fingerprint(hashes.SHA256()).hex()


def certifies(cert_pem: bytes, key_pem: bytes) -> bool:
    """Whether the certificate is for this private key."""
    public = _certificate(cert_pem).public_key()
    return isinstance(public, ec.EllipticCurvePublicKey) and _der(public) == _der(_key(key_pem).public_key())


def _builder(
    subject: x509.Name, issuer: x509.Name, public: ec.EllipticCurvePublicKey, start: float, end: float
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(datetime.fromtimestamp(start, UTC))
        .not_valid_after(datetime.fromtimestamp(end, UTC))
    )


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        pass
    try:
        return x509.DNSName(host)
    except ValueError:
        raise ConfigError(f"{host!r:.80} is neither a host name nor an IP address") from None


def _key(key_pem: bytes) -> ec.EllipticCurvePrivateKey:
    try:
        key = serialization.load_pem_private_key(key_pem, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise ConfigError("this is not an unencrypted PEM private key") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey) or not isinstance(key.curve, ec.SECP256R1):
        raise ConfigError("this private key is not an EC P-256 key")
    return key


def _certificate(cert_pem: bytes) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(cert_pem)
    except ValueError:
        raise ConfigError("this is not a PEM certificate") from None


def _request_key(csr_pem: bytes) -> ec.EllipticCurvePublicKey:
    if len(csr_pem) > MAX_PEM_BYTES:
        raise EnrolmentError(f"the certificate request has {len(csr_pem)} bytes, more than {MAX_PEM_BYTES}")
    try:
        request = x509.load_pem_x509_csr(csr_pem)
        public, signed = request.public_key(), request.is_signature_valid
    except (ValueError, UnsupportedAlgorithm):
        raise EnrolmentError("this is not a PEM certificate request") from None
    if not isinstance(public, ec.EllipticCurvePublicKey) or not isinstance(public.curve, ec.SECP256R1):
        raise EnrolmentError("the certificate request's key is not an EC P-256 key")
    if not signed:
        raise EnrolmentError("the certificate request is not signed by its own key")
    return public


def _der(public: ec.EllipticCurvePublicKey) -> bytes:
    return public.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
