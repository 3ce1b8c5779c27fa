"""What does things to nodes, as the settings ask for it."""

from __future__ import annotations

from concurrent.futures import Executor

from paceline.errors import ConfigError
from paceline_service.notify.http import Outgoing
from paceline_service.notify.nodes.executor import Fence, NodeActions
from paceline_service.notify.nodes.kubernetes import Kubernetes, cluster_url
from paceline_service.notify.nodes.policy import DRAIN, Policy
from paceline_service.notify.nodes.slurm import Slurm
from paceline_service.notify.secret import Secret
from paceline_service.notify_settings import EXECUTE, PROPOSE, NotifySettings
from paceline_service.store.database import Database


def build_actions(
    settings: NotifySettings, database: Database, pool: Executor, fence: Fence | None
) -> NodeActions | None:
    """Return it; None: nothing is done, only proposed.

    Raises:
        ConfigError: what is asked for cannot work.
    """
    if settings.actions_mode == PROPOSE:
        return None
    if not settings.actions_allow or not settings.actions_nodes:
        raise ConfigError(
            f"PACELINE_SERVE_ACTIONS_MODE={settings.actions_mode} with nothing that is allowed: "
            "name actions in PACELINE_SERVE_ACTIONS_ALLOW and nodes in "
            "PACELINE_SERVE_ACTIONS_NODES, or set the mode to propose (docs/messages.md)"
        )
    kubernetes, slurm = None, None
    if settings.actions_mode == EXECUTE:
        if any(one != DRAIN for one in settings.actions_allow):
            kubernetes = _kubernetes(settings)
        if DRAIN in settings.actions_allow:
            slurm = Slurm(settings.actions_scontrol)
    policy = Policy(
        allow=settings.actions_allow,
        nodes=settings.actions_nodes,
        jobs=settings.actions_jobs,
        causes=settings.actions_causes,
        min_severity=settings.actions_min_severity,
        max_nodes=settings.actions_max_nodes,
    )
    return NodeActions(
        database, policy, mode=settings.actions_mode, after_s=settings.notify_after_s,
        window_s=settings.actions_window_s,
        kubernetes=kubernetes, slurm=slurm, pool=pool, fence=fence,
    )  # fmt: skip


def _kubernetes(settings: NotifySettings) -> Kubernetes:
    url = cluster_url(settings.actions_kubernetes_url)
    token = Secret(
        "PACELINE_SERVE_ACTIONS_KUBERNETES_TOKEN_FILE", None, settings.actions_kubernetes_token_file
    )
    token.first()
    secure = url.startswith("https:")
    ca_file = settings.actions_kubernetes_ca_file if secure else None
    http = Outgoing(settings.notify_plain_http_hosts, ca_file, only_ca=True)
    return Kubernetes(url, token, http)
