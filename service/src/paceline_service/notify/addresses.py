"""Where messages may be sent: by the URL, and by the address that its name turns out to have.

URLs come from whoever runs the collector, never from a request or a frame. The rules keep a
mistake, or a name server that lies, from leading secrets into the clear or requests to the
metadata service of a cloud or to what listens on this machine only.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

from paceline.errors import ConfigError

MAX_URL_CHARS = 2048
_LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
_METADATA = frozenset(
    ipaddress.ip_address(one) for one in ("fd00:ec2::254", "100.100.100.200", "192.0.0.192")
)
"""Metadata services of clouds that are not link-local."""
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_PRINTABLE = re.compile(r"[!-~]+\Z")
_IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address


@dataclass(frozen=True, slots=True)
class Target:
    """A URL that was checked."""

    secure: bool
    host: str
    port: int
    path: str
    """With its query."""
    loopback: bool

    @property
    def origin(self) -> str:
        """The URL without its path, which may be secret: for logs and errors."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        scheme, usual = ("https", 443) if self.secure else ("http", 80)
        return f"{scheme}://{host}" if self.port == usual else f"{scheme}://{host}:{self.port}"


def check_url(url: str, plain_hosts: Collection[str]) -> Target:
    """Return where ``url`` leads.

    Args:
        url: https, or http where that is allowed.
        plain_hosts: hosts that may be sent to without TLS, beside this machine.

    Raises:
        ConfigError: it breaks a rule; the message does not hold the URL, which may be secret.
    """
    if not url or len(url) > MAX_URL_CHARS or not _PRINTABLE.match(url):
        raise ConfigError(
            f"a URL of {len(url)} characters that is empty, longer than {MAX_URL_CHARS} or not "
            "plain ASCII; give one such as https://host/path"
        )
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError as error:
        raise ConfigError(f"a URL that cannot be read ({error}); give https://host/path") from error
    if parts.scheme not in ("https", "http") or not host:
        raise ConfigError(
            f"a URL of scheme {parts.scheme[:16]!r} and host {host[:64]!r}; give https://host/path"
        )
    if parts.username is not None or parts.password is not None:
        raise ConfigError(
            f"the URL of {host} holds a name or a password; give secrets in their own settings"
        )
    if parts.fragment:
        raise ConfigError(f"the URL of {host} has a fragment, which is never sent; leave # out")
    loopback = host in _LOOPBACK_NAMES
    if parts.scheme == "http" and not loopback and host not in plain_hosts:
        raise ConfigError(
            f"http://{host} would be sent to without TLS; give https, or name {host} in "
            "PACELINE_SERVE_NOTIFY_PLAIN_HTTP_HOSTS"
        )
    secure = parts.scheme == "https"
    return Target(secure, host, port or (443 if secure else 80), _path(parts), loopback)


def check_address(text: str, target: Target) -> None:
    """Raise where nothing may be sent to an address that the host of ``target`` has.

    Raises:
        ConfigError: it is a metadata service, this machine, or no address of one machine.
    """
    address: _IpAddress = ipaddress.ip_address(text.partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            address = address.ipv4_mapped
        elif address in _NAT64:
            address = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    if address.is_loopback:
        if target.loopback:
            return
        why = "this machine, under a name that is not localhost"
    elif address.is_link_local or address in _METADATA:
        why = "link-local, where clouds keep their metadata service"
    elif address.is_multicast or address.is_unspecified or address.is_reserved:
        why = "no address of one machine"
    else:
        return
    raise ConfigError(
        f"{target.host} has the address {address}: {why}; nothing is sent there. Give another host"
    )


def _path(parts: SplitResult) -> str:
    path = parts.path or "/"
    return f"{path}?{parts.query}" if parts.query else path
