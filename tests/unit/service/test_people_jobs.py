"""Whose jobs people see is told by a claim, where the collector was told which."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from paceline_service.access.oidc.people import SESSION, OidcPeople
from paceline_service.errors import PermissionDeniedError
from paceline_service.settings import CollectorSettings


def people(claim: str = "paceline.jobs") -> OidcPeople:
    return OidcPeople(
        CollectorSettings(
            public_url="https://paceline.example", oidc_issuer="https://id.example",
            oidc_client_id="paceline", oidc_read_roles=["*"], oidc_jobs_claim=claim,
        )
    )  # fmt: skip


def claims(**more: Any) -> dict[str, Any]:
    return {"sub": "u-1", **more}


def with_session(of: OidcPeople, **content: Any) -> Any:
    told = {"sid": "1", "name": "person u-1", "scopes": ["read"], **content}
    cookie = of.signer.sign(SESSION, told, 60)
    return of.session(SimpleNamespace(cookies={of.cookie_name: cookie}))  # type: ignore[arg-type]


def test_without_a_claim_people_see_all_jobs() -> None:
    assert people("").person(claims(paceline={"jobs": "team-a"})).job_prefix == ""
    assert with_session(people("")).covers("anything")


@pytest.mark.parametrize("told", ["team-a", ["team-a"]])
def test_the_claim_holds_the_prefix(told: Any) -> None:
    assert people().person(claims(paceline={"jobs": told})).job_prefix == "team-a"


def test_a_star_means_all_jobs() -> None:
    assert people().person(claims(paceline={"jobs": "*"})).job_prefix == ""


@pytest.mark.parametrize("told", [None, "", [], ["a", "b"], 7, [None], "no/job", {"team-a": 1}])
def test_who_is_told_no_prefix_is_not_let_in(told: Any) -> None:
    with pytest.raises(PermissionDeniedError, match="u-1"):
        people().person(claims(paceline={"jobs": told}))


def test_a_session_keeps_the_prefix() -> None:
    grant = with_session(people(), jobs="team-a")
    assert grant.covers("team-a.llm")
    assert not grant.covers("team-ab")
    assert not grant.covers("team-b")


def test_a_session_from_before_the_claim_was_asked_for_is_none() -> None:
    assert with_session(people()) is None
