"""The channels that the settings ask for, and those of a file beside them."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from paceline.errors import ConfigError
from paceline_service.notify.channels.alertmanager import Alertmanager
from paceline_service.notify.channels.base import Audience, Channel
from paceline_service.notify.channels.pagerduty import PagerDuty
from paceline_service.notify.channels.slack import SlackBot, SlackWebhook
from paceline_service.notify.channels.webhook import Webhook
from paceline_service.notify.http import Outgoing
from paceline_service.notify.proxy import make_proxy
from paceline_service.notify.secret import Secret
from paceline_service.notify_settings import NotifySettings, Severity

MAX_CHANNELS = 32
MAX_FILE_BYTES = 256 * 1024


class _Spec(BaseModel):
    """A channel of the file; secrets stand in files of their own."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9-]{0,62}$")
    kind: Literal["webhook", "slack", "slack-webhook", "pagerduty", "alertmanager"]
    min_severity: Severity = "info"
    jobs: list[str] = Field(default_factory=lambda: ["*"], min_length=1)
    url: str = ""
    url_file: Path | None = None
    secret_file: Path | None = None
    room: str = ""


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    channels: list[_Spec]


def build_channels(settings: NotifySettings) -> list[Channel]:
    """Return the channels, each checked as far as it can be without sending anything.

    Raises:
        ConfigError: one of them makes no sense.
    """
    http = Outgoing(
        settings.notify_plain_http_hosts,
        _file(settings.notify_ca_file),
        proxy=make_proxy(settings.notify_proxy, settings.notify_direct_hosts),
    )
    channels = [*_of_settings(settings, http), *_of_file(settings, http)]
    names = [one.name for one in channels]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"there are {names.count(name)} channels {name!r}; name each once")
    if len(channels) > MAX_CHANNELS:
        raise ConfigError(f"{len(channels)} channels; the limit is {MAX_CHANNELS}: join some")
    for channel in channels:
        try:
            channel.check()
        except ConfigError as error:
            raise ConfigError(f"channel {channel.name}: {error} (docs/messages.md)") from error
    return channels


def _of_settings(settings: NotifySettings, http: Outgoing) -> list[Channel]:
    made: list[Channel] = []
    url = Secret("PACELINE_SERVE_NOTIFY_WEBHOOK_URL", settings.notify_webhook_url, None)
    if url:
        secret = Secret(
            "PACELINE_SERVE_NOTIFY_WEBHOOK_SECRET",
            settings.notify_webhook_secret,
            settings.notify_webhook_secret_file,
        )
        audience = Audience(min_severity=settings.notify_webhook_min_severity)
        made.append(Webhook("webhook", audience, http, url=url, secret=secret))
    audience = Audience(min_severity=settings.notify_slack_min_severity)
    url = Secret(
        "PACELINE_SERVE_NOTIFY_SLACK_URL", settings.notify_slack_url, settings.notify_slack_url_file
    )
    token = Secret(
        "PACELINE_SERVE_NOTIFY_SLACK_TOKEN",
        settings.notify_slack_token,
        settings.notify_slack_token_file,
    )
    if token:
        made.append(
            SlackBot(
                "slack", audience, http, api=settings.notify_slack_api, token=token,
                room=settings.notify_slack_channel,
            )
        )  # fmt: skip
    elif url:
        made.append(SlackWebhook("slack", audience, http, url=url))
    key = Secret(
        "PACELINE_SERVE_NOTIFY_PAGERDUTY_KEY",
        settings.notify_pagerduty_key,
        settings.notify_pagerduty_key_file,
    )
    if key:
        audience = Audience(min_severity=settings.notify_pagerduty_min_severity)
        where = settings.notify_pagerduty_url
        made.append(PagerDuty("pagerduty", audience, http, url=where, key=key))
    audience = Audience(min_severity=settings.notify_alertmanager_min_severity)
    token = Secret(
        "PACELINE_SERVE_NOTIFY_ALERTMANAGER_TOKEN",
        settings.notify_alertmanager_token,
        settings.notify_alertmanager_token_file,
    )
    several = len(settings.notify_alertmanager_urls) > 1
    for number, one in enumerate(settings.notify_alertmanager_urls, start=1):
        name = f"alertmanager-{number}" if several else "alertmanager"
        made.append(Alertmanager(name, audience, http, url=one, token=token))
    return made


def _of_file(settings: NotifySettings, http: Outgoing) -> list[Channel]:
    path = _file(settings.notify_channels_file)
    if path is None:
        return []
    try:
        with path.open("rb") as file:
            told = _File.model_validate_json(file.read(MAX_FILE_BYTES))
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    except ValidationError as error:
        faults = "; ".join(
            f"{'.'.join(str(part) for part in item['loc']) or 'file'}: {item['msg']}"
            for item in error.errors(include_input=False, include_url=False)
        )
        raise ConfigError(f"{path}: {faults} (docs/messages.md)") from error
    return [_of_spec(one, settings, http) for one in told.channels]


def _of_spec(spec: _Spec, settings: NotifySettings, http: Outgoing) -> Channel:
    audience = Audience(min_severity=spec.min_severity, jobs=tuple(spec.jobs))
    url = Secret(f"url of channel {spec.name}", None, spec.url_file)
    if spec.url_file is None:
        url = Secret.of(f"url of channel {spec.name}", spec.url)
    secret = Secret(f"secret_file of channel {spec.name}", None, spec.secret_file)
    if spec.kind == "webhook":
        return Webhook(spec.name, audience, http, url=url, secret=secret)
    if spec.kind == "slack-webhook":
        return SlackWebhook(spec.name, audience, http, url=url)
    if spec.kind == "slack":
        api = spec.url or settings.notify_slack_api
        return SlackBot(spec.name, audience, http, api=api, token=secret, room=spec.room)
    if spec.kind == "pagerduty":
        where = spec.url or settings.notify_pagerduty_url
        return PagerDuty(spec.name, audience, http, url=where, key=secret)
    return Alertmanager(spec.name, audience, http, url=spec.url, token=secret)


def _file(path: Path | None) -> Path | None:
    """Return a path that was given; an empty variable gives none."""
    return None if path is None or path == Path() else path
