"""TLS towards the collector: whom to trust, and who we are."""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping

from paceline.errors import ConfigError

_HOSTNAME_MISMATCH = (62, 63, 64)
"""OpenSSL's X509_V_ERR_HOSTNAME_MISMATCH, EMAIL, IP_ADDRESS."""
_EXPIRED, _NOT_YET_VALID = 10, 9


def client_context(environ: Mapping[str, str] = os.environ) -> ssl.SSLContext:
    """Return how connections to the collector are encrypted; TLS 1.2 at least, always verified.

    ``PACELINE_CA_FILE`` names the authorities to trust, in place of the system's (which OpenSSL's
    own SSL_CERT_FILE and SSL_CERT_DIR change). ``PACELINE_CERT_FILE`` and ``PACELINE_KEY_FILE``
    are what is shown to a collector or an ingress that asks for a client certificate.

    Raises:
        ConfigError: one of the files cannot be used.
    """
    authorities = environ.get("PACELINE_CA_FILE") or None
    try:
        context = ssl.create_default_context(cafile=authorities)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"PACELINE_CA_FILE {authorities} cannot be used: {error}; give a PEM file of "
            "certificates"
        ) from error
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    certificate = environ.get("PACELINE_CERT_FILE")
    if certificate:
        try:
            context.load_cert_chain(certificate, environ.get("PACELINE_KEY_FILE") or None)
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"PACELINE_CERT_FILE {certificate} with PACELINE_KEY_FILE cannot be used: {error}; "
                "give PEM files that belong together"
            ) from error
    return context


def tls_advice(error: BaseException) -> str:
    """Return what to do about a TLS error, or an empty string where nobody has to do anything."""
    if isinstance(error, ssl.SSLCertVerificationError):
        said = error.verify_message or "it is not trusted"
        if error.verify_code in _HOSTNAME_MISMATCH:
            advice = "use a name in the URL that stands in the certificate"
        elif error.verify_code in (_EXPIRED, _NOT_YET_VALID):
            advice = "renew it at the collector, and compare the clocks"
        else:
            advice = "set PACELINE_CA_FILE to the PEM file of the authority that signed it"
        return f"the collector's certificate is refused ({said}): {advice}"
    if not isinstance(error, ssl.SSLError):
        return ""
    reason = error.reason or ""
    if "CERTIFICATE_REQUIRED" in reason or "HANDSHAKE_FAILURE" in reason:
        return (
            "the collector asks for a client certificate: set PACELINE_CERT_FILE and "
            "PACELINE_KEY_FILE"
        )
    if "UNKNOWN_CA" in reason or "BAD_CERTIFICATE" in reason:
        return (
            "the collector does not trust the client certificate: PACELINE_CERT_FILE has to be "
            "signed by an authority of its --tls-client-ca"
        )
    if "WRONG_VERSION" in reason or "RECORD_LAYER" in reason or "HTTP_REQUEST" in reason:
        return "what answers does not speak TLS: is the URL http:// rather than https://?"
    return ""


def closed_hint(url: str, error: BaseException, environ: Mapping[str, str] = os.environ) -> str:
    """Return what a connection that was closed without a word may mean, or an empty string.

    Some servers do not say that they want a client certificate: they hang up.
    """
    if not url.startswith("https:") or environ.get("PACELINE_CERT_FILE"):
        return ""
    if not isinstance(error, ConnectionError):  # http.client.RemoteDisconnected is one
        return ""
    return "; if it asks for client certificates, set PACELINE_CERT_FILE and PACELINE_KEY_FILE"
