"""What a SuperLink with TLS and node authentication asks for, made in a moment."""

from __future__ import annotations

import ipaddress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from cryptography.x509.oid import NameOID


def make_key(home: Path, name: str) -> None:
    """`name` and `name`.pub, as by `ssh-keygen -t ecdsa -b 384`."""
    key = ec.generate_private_key(ec.SECP384R1())
    (home / name).write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))
    (home / f"{name}.pub").write_bytes(key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH))


def make_certificates(home: Path) -> None:
    """An authority, ca.crt, and its certificate for this machine, server.pem, with the key server.key."""
    authority, server = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    us, here = _name("equifl's tests"), _name("localhost")
    ca = _certificate(us, us, authority, authority, x509.BasicConstraints(ca=True, path_length=None))
    places = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    certificate = _certificate(here, us, server, authority, x509.SubjectAlternativeName(places))
    (home / "ca.crt").write_bytes(ca.public_bytes(Encoding.PEM))
    (home / "server.pem").write_bytes(certificate.public_bytes(Encoding.PEM))
    (home / "server.key").write_bytes(server.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))


def _name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _certificate(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    signer: ec.EllipticCurvePrivateKey,
    extension: x509.ExtensionType,
) -> x509.Certificate:
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder(issuer, subject, key.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(now - timedelta(hours=1)).not_valid_after(now + timedelta(hours=24))
    return builder.add_extension(extension, critical=False).sign(signer, hashes.SHA256())
