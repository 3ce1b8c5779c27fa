"""The settings of messages about incidents (docs/messages.md)."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings

Severity = Literal["info", "ticket", "page"]
ActionName = Literal["kubernetes-event", "kubernetes-condition", "kubernetes-taint", "slurm-drain"]
PROPOSE, DRY_RUN, EXECUTE = "propose", "dry-run", "execute"
SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class NotifySettings(BaseSettings):
    """Part of ``CollectorSettings``."""

    notify_webhook_url: SecretStr | None = Field(
        None, description="Where signed webhooks are sent; unset: nowhere."
    )
    notify_webhook_secret: SecretStr | None = Field(
        None, description="Signs webhooks, 16 characters at least."
    )
    notify_webhook_secret_file: Path | None = Field(
        None, description="File of it, read at every message; several lines: several signatures."
    )
    notify_webhook_min_severity: Severity = Field("info", description="Least severity sent there.")
    notify_slack_url: SecretStr | None = Field(
        None, description="Slack incoming webhook; it is a secret. Updates are new messages."
    )
    notify_slack_url_file: Path | None = Field(None, description="File of that URL.")
    notify_slack_token: SecretStr | None = Field(
        None, description="Slack bot token (chat:write): updates edit the first message."
    )
    notify_slack_token_file: Path | None = Field(None, description="File of that token.")
    notify_slack_channel: str = Field(
        "", max_length=80, description="With a bot token: id of the Slack channel."
    )
    notify_slack_api: str = Field(
        "https://slack.com/api", description="Base of Slack's API, for a gateway of your own."
    )
    notify_slack_min_severity: Severity = Field("ticket", description="Least severity sent there.")
    notify_pagerduty_key: SecretStr | None = Field(
        None, description="Integration key of PagerDuty's Events API v2."
    )
    notify_pagerduty_key_file: Path | None = Field(None, description="File of that key.")
    notify_pagerduty_url: str = Field(
        "https://events.pagerduty.com/v2/enqueue", description="Where events are sent."
    )
    notify_pagerduty_min_severity: Severity = Field(
        "page", description="Least severity sent there."
    )
    notify_alertmanager_urls: list[str] = Field(
        default_factory=list,
        description="Alertmanagers (JSON list), all of a cluster: each is told.",
    )
    notify_alertmanager_token: SecretStr | None = Field(
        None, description="Bearer token for them, where one is wanted."
    )
    notify_alertmanager_token_file: Path | None = Field(None, description="File of that token.")
    notify_alertmanager_min_severity: Severity = Field(
        "info", description="Least severity sent there."
    )
    notify_channels_file: Path | None = Field(
        None, description="JSON file of more channels, each with jobs of its own."
    )
    notify_after_s: float = Field(
        20.0, ge=0, description="An incident is told of when it has been open for so long."
    )
    notify_look_s: float = Field(
        2.0, ge=0.1, description="How often it is looked whether an incident has news."
    )
    notify_update_gpu_hours: float = Field(
        1.0, gt=0, description="A cost that doubled is told of if it grew by so much."
    )
    notify_rate_per_minute: float = Field(
        30.0, gt=0, description="Most messages a minute to one channel; others wait."
    )
    notify_give_up_s: float = Field(
        86_400.0, gt=0, description="A message that cannot be delivered is tried for so long."
    )
    notify_ca_file: Path | None = Field(
        None, description="PEM file of authorities trusted beside the system's."
    )
    notify_plain_http_hosts: list[str] = Field(
        default_factory=list,
        description="Hosts that may be sent to without TLS (JSON list), beside loopback.",
    )
    notify_proxy: str = Field(
        "", description="HTTP proxy (`http://host:port`) by which receivers with TLS are reached."
    )
    notify_direct_hosts: list[str] = Field(
        default_factory=list,
        description="Patterns of hosts that are reached without it (JSON list).",
    )
    notify_dashboard_url: str = Field(
        "", description="Base of Grafana: messages then link the dashboard of the job."
    )
    notify_runbooks_url: str = Field(
        "", description="Where the pages of docs/runbooks are read: messages then link theirs."
    )
    actions_mode: Literal["propose", "dry-run", "execute"] = Field(
        "propose",
        description="What is done to nodes: nothing; written down as it would be; done.",
    )
    actions_allow: list[ActionName] = Field(
        default_factory=list, description="Which actions (JSON list); none unless named."
    )
    actions_nodes: list[str] = Field(
        default_factory=list, description="Patterns of node names that may be touched (JSON list)."
    )
    actions_jobs: list[str] = Field(
        default_factory=lambda: ["*"],
        description="Patterns of jobs whose incidents count (JSON list).",
    )
    actions_causes: list[str] = Field(
        default_factory=lambda: ["gpu_fault", "gpu_throttle"],
        description="Causes for which a node is taken out of service (JSON list).",
    )
    actions_min_severity: Severity = Field("page", description="Least severity that counts.")
    actions_max_nodes: int = Field(
        1, ge=1, description="Most nodes taken out of service within the window, of all jobs."
    )
    actions_window_s: float = Field(3600.0, ge=60, description="That window.")
    actions_scontrol: str = Field("scontrol", description="The program, by name or path.")
    actions_kubernetes_url: str = Field(
        "", description="Kubernetes API; empty: that of the cluster the collector runs in."
    )
    actions_kubernetes_token_file: Path = Field(
        SERVICE_ACCOUNT / "token", description="Token of the service account, read at every use."
    )
    actions_kubernetes_ca_file: Path = Field(
        SERVICE_ACCOUNT / "ca.crt", description="PEM file of the authority of that API."
    )
