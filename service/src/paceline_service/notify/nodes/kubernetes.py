"""Events, a condition and a taint on nodes of Kubernetes, by its API and a service account.

Each request can be made again and changes nothing then: an event has a name of its own, a condition
and a taint are set to what they are.
"""

from __future__ import annotations

import json
import os
import re
import time
from typing import Any
from urllib.parse import quote, urlencode

import msgspec

from paceline.errors import ConfigError, TransportError
from paceline_service.notify.http import Answer, Outgoing
from paceline_service.notify.message import Facts
from paceline_service.notify.nodes.outcome import Outcome
from paceline_service.notify.nodes.policy import CLEAR_CONDITION, CONDITION, EVENT
from paceline_service.notify.nodes.proposals import TAINT as TAINT_KEY
from paceline_service.notify.nodes.proposals import is_kubernetes_name, taint_value
from paceline_service.notify.secret import Secret

CONDITION_TYPE = "PacelineStraggler"
COMPONENT = "paceline"
JOB_LABEL = "paceline.dev/job"
"""Pods with this label get the event of their node, too."""
MAX_MESSAGE_CHARS = 1000
MAX_PODS = 16
TRIES = 3
"""Somebody else may change a node between reading it and writing it."""
_STRATEGIC = "application/strategic-merge-patch+json"
_MERGE = "application/merge-patch+json"
_LABEL = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?\Z")
Json = dict[str, Any]


def cluster_url(given: str) -> str:
    """Return the URL of the API: what was given, or that of the cluster this process runs in.

    Raises:
        ConfigError: neither is known.
    """
    if given:
        return given.rstrip("/")
    host, port = (
        os.environ.get("KUBERNETES_SERVICE_HOST"),
        os.environ.get("KUBERNETES_SERVICE_PORT"),
    )
    if not host:
        raise ConfigError(
            "actions on nodes of Kubernetes, and no cluster around this collector: set "
            "PACELINE_SERVE_ACTIONS_KUBERNETES_URL"
        )
    return f"https://[{host}]:{port or 443}" if ":" in host else f"https://{host}:{port or 443}"


class Kubernetes:
    """Makes requests; it blocks.

    Args:
        url: of the API.
        token: of the service account.
        http: trusts the authority of the cluster and no other.
    """

    def __init__(self, url: str, token: Secret, http: Outgoing) -> None:
        http.check(url)
        self._url = url
        self._token = token
        self._http = http

    def do(self, request: Json) -> Outcome:
        """Make a request that ``request_of`` has made."""
        try:
            if "adds_taint" in request:
                return self._taint(request)
            answer = self._send(request)
            if answer.status == 409 and request["method"] == "POST":
                return Outcome(done=True, words="it was there already")
            outcome = _outcome(answer)
            pods = request.get("also_on_pods")
            return self._pods(request, pods) if outcome.done and pods else outcome
        except TransportError as error:
            return Outcome(done=False, words=str(error), again=True)
        except ConfigError as error:
            return Outcome(done=False, words=str(error), again=True)

    def _send(self, request: Json) -> Answer:
        body = request.get("body")
        return self._http.send(
            request["method"],
            self._url + request["path"],
            None if body is None else msgspec.json.encode(body),
            {
                "Authorization": f"Bearer {self._token.first()}",
                **({"Content-Type": request["content_type"]} if body is not None else {}),
            },
        )

    def _taint(self, request: Json) -> Outcome:
        """Add a taint to those that a node has; the version that was read must be the newest."""
        wanted, outcome = request["adds_taint"], Outcome(done=False, words="")
        for _ in range(TRIES):
            read = self._send({"method": "GET", "path": request["path"]})
            if read.status != 200:
                return _outcome(read)
            try:
                node = json.loads(read.body)
                has = list(node["spec"].get("taints") or ())
                version = str(node["metadata"]["resourceVersion"])
            except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
                return Outcome(done=False, words="the API answers with no node", again=True)
            if any(one.get("key") == wanted["key"] for one in has if isinstance(one, dict)):
                return Outcome(done=True, words="it has such a taint already")
            patch = {"metadata": {"resourceVersion": version}, "spec": {"taints": [*has, wanted]}}
            answer = self._send({**request, "body": patch})
            outcome = _outcome(answer)
            if answer.status != 409:
                break
        return outcome

    def _pods(self, request: Json, query: str) -> Outcome:
        """Put the event of a node on the pods of the job there, too."""
        found = self._send({"method": "GET", "path": f"/api/v1/pods?{query}"})
        if found.status != 200:
            words = f"done for the node; its pods are not told: {_outcome(found).words}"
            return Outcome(done=True, words=words)
        told = 0
        for pod in json.loads(found.body).get("items", ())[:MAX_PODS]:
            meta = pod["metadata"]
            name, namespace = str(meta["name"]), str(meta["namespace"])
            event = json.loads(json.dumps(request["body"]))
            own = f"{name}.{event['metadata']['name'].rpartition('.')[2]}"
            event["metadata"] = {"name": own, "namespace": namespace}
            event["involvedObject"] = {
                "apiVersion": "v1", "kind": "Pod", "name": name, "namespace": namespace,
                "uid": meta.get("uid", ""),
            }  # fmt: skip
            path = f"/api/v1/namespaces/{quote(namespace, safe='')}/events"
            answer = self._send({**request, "path": path, "body": event})
            told += answer.status in (200, 201, 409)
        return Outcome(done=True, words=f"done for the node and {told} pods")


def request_of(action: str, facts: Facts, node: str, now_s: float) -> Json:
    """Return the request of an action; it is what is written down, too."""
    assert is_kubernetes_name(node), "the policy lets no other name through"
    path = f"/api/v1/nodes/{node}"
    if action == EVENT:
        return _event_request(facts, node, now_s)
    if action in (CONDITION, CLEAR_CONDITION):
        condition = _condition(facts, now_s, holds=action == CONDITION)
        return {
            "method": "PATCH",
            "path": f"{path}/status",
            "content_type": _STRATEGIC,
            "body": {"status": {"conditions": [condition]}},
        }
    taint = {"key": TAINT_KEY, "value": taint_value(facts.cause), "effect": "NoSchedule"}
    return {"method": "PATCH", "path": path, "content_type": _MERGE, "adds_taint": taint}


def _event_request(facts: Facts, node: str, now_s: float) -> Json:
    now = _iso(now_s)
    request: Json = {
        "method": "POST",
        "path": "/api/v1/namespaces/default/events",
        "content_type": "application/json",
        "body": {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"{node[:200]}.{facts.key}", "namespace": "default"},
            # As the kubelet does it: `kubectl describe node` looks for the name in the uid.
            "involvedObject": {"apiVersion": "v1", "kind": "Node", "name": node, "uid": node},
            "reason": _reason(facts.kind),
            "message": words_of(facts),
            "type": "Warning",
            "source": {"component": COMPONENT},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
            "reportingComponent": "paceline.dev/collector",
            "reportingInstance": COMPONENT,
        },
    }
    if _LABEL.match(facts.job):
        selectors = {
            "fieldSelector": f"spec.nodeName={node}",
            "labelSelector": f"{JOB_LABEL}={facts.job}",
            "limit": MAX_PODS,
        }
        request["also_on_pods"] = urlencode(selectors)
    return request


def _condition(facts: Facts, now_s: float, *, holds: bool) -> Json:
    now = _iso(now_s)
    return {
        "type": CONDITION_TYPE,
        "status": "True" if holds else "False",
        "reason": _reason(facts.cause) if holds else "NoStraggler",
        "message": words_of(facts) if holds else f"incident {facts.id} is over",
        "lastHeartbeatTime": now,
        "lastTransitionTime": now,
    }


def words_of(facts: Facts) -> str:
    """Return an incident in the words of an event."""
    cost = f"; it has cost {facts.cost}" if facts.cost else ""
    where = f" {facts.page_url}" if facts.page_url else ""
    text = f"Job {facts.job}: {facts.headline} (cause: {facts.cause}){cost}.{where}"
    return text[:MAX_MESSAGE_CHARS]


def _reason(words: str) -> str:
    """Return words as Kubernetes writes reasons: ``gpu_fault`` is ``GpuFault``."""
    parts = re.sub(r"[^A-Za-z0-9]+", " ", words).split()
    return "".join(part.capitalize() for part in parts)[:64] or "Unknown"


def _outcome(answer: Answer) -> Outcome:
    if 200 <= answer.status < 300:
        return Outcome(done=True, words=f"done: {answer.status}")
    try:
        said = str(json.loads(answer.body).get("message", ""))
    except (ValueError, AttributeError, RecursionError):
        said = ""
    words = f"the API answers {answer.status}: {' '.join(said.split())[:300]}"
    if answer.status == 403:
        words += " (deploy/kubernetes/node-actions.yaml has the role)"
    return Outcome(done=False, words=words, again=answer.status != 422)


def _iso(wall_s: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(wall_s))
