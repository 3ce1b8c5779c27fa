"""TLS of the collector's own listener."""

from __future__ import annotations

import ssl
from pathlib import Path

from paceline.errors import ConfigError


def server_tls(
    certificate: Path | None, key: Path | None, client_ca: Path | None
) -> ServerTls | None:
    """Return the TLS that was asked for, if any.

    Raises:
        ConfigError: a file cannot be used, or a key or authorities are given alone.
    """
    if certificate is None:
        if key is not None or client_ca is not None:
            raise ConfigError(
                f"there is a TLS key ({key}) or an authority of clients ({client_ca}) but no "
                "certificate: give --tls-cert, or neither"
            )
        return None
    return ServerTls(certificate, key, client_ca)


class ServerTls:
    """A certificate and its key, and optionally the authority that clients must be certified by.

    Args:
        certificate: PEM; the own certificate first, then those between it and the root.
        key: PEM, without a passphrase; None: it stands in ``certificate`` too.
        client_ca: PEM; clients without a certificate by one of these are refused.

    Raises:
        ConfigError: a file cannot be read, or the key is not that of the certificate.
    """

    def __init__(self, certificate: Path, key: Path | None, client_ca: Path | None) -> None:
        self._certificate = certificate
        self._key = key
        self._client_ca = client_ca
        self.context = self._load(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))

    def reload(self) -> None:
        """Take the files as they are now, for connections from here on.

        An authority that was taken out of the file of authorities stays trusted until a restart.

        Raises:
            ConfigError: they cannot be used; what was loaded before stays.
        """
        self._load(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))  # a bad pair must not be half loaded
        self._load(self.context)

    def _load(self, context: ssl.SSLContext) -> ssl.SSLContext:
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        try:
            context.load_cert_chain(self._certificate, self._key, password=_no_passphrase)
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            raise ConfigError(
                f"the certificate {self._certificate} and the key {self._key or 'in it'} cannot be "
                f"used: {error}; give PEM files that belong together, and a key without a "
                "passphrase, with --tls-cert and --tls-key"
            ) from error
        if self._client_ca is not None:
            try:
                context.load_verify_locations(self._client_ca)
            except (OSError, ValueError) as error:
                raise ConfigError(
                    f"the authorities of clients {self._client_ca} cannot be used: {error}; give "
                    "a PEM file of certificates with --tls-client-ca"
                ) from error
            context.verify_mode = ssl.CERT_REQUIRED
        return context


def _no_passphrase() -> str:
    # Without this OpenSSL would ask on the terminal, and a service would hang there.
    raise ValueError("the key has a passphrase")
