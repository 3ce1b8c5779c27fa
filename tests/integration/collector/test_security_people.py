from __future__ import annotations

import base64
import hashlib
import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from joserfc import jwt
from joserfc.jwk import RSAKey

from paceline.errors import ConfigError
from paceline_service.access.oidc.cookies import Signer
from paceline_service.access.oidc.people import OidcPeople
from paceline_service.settings import CollectorSettings
from tests.integration.collector.kit import TOKEN, CollectorProcess, wait_until
from tests.integration.collector.oidc_provider import CLIENT, SECRET, OidcProvider
from tests.integration.collector.people_kit import (
    API,
    Browser,
    collector_for,
    jwt_status,
    nonsense,
    other_key,
    shared_secret,
)

pytestmark = pytest.mark.integration
Json = dict[str, Any]


@pytest.fixture(scope="module")
def provider() -> Iterator[OidcProvider]:
    made = OidcProvider()
    yield made
    made.close()


@pytest.fixture(autouse=True)
def behaving(provider: OidcProvider) -> None:
    provider.user = {"sub": "u-1", "email": "ada@example.org", "groups": ["operators"]}
    provider.alter = lambda claims: None
    provider.sign = provider.signed


@pytest.fixture(scope="module")
def collector(
    provider: OidcProvider, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[CollectorProcess]:
    process = collector_for(tmp_path_factory.mktemp("people") / "state", provider)
    yield process
    assert process.stop() == 0


def test_somebody_with_a_role_signs_in_reads_and_signs_out(
    collector: CollectorProcess, provider: OidcProvider
) -> None:
    browser = Browser(collector.url)
    assert browser.ask("GET", "/v1/jobs")[0] == 401
    assert browser.ask("GET", "/auth/session")[1] == {
        "sign_in": True, "name": None, "scopes": [],
    }  # fmt: skip
    status, _, location = browser.sign_in("#/job/train")
    assert (status, location) == (303, f"{collector.url}/#/job/train")
    assert browser.ask("GET", "/v1/jobs")[0] == 200
    assert browser.ask("GET", "/auth/session")[1]["name"] == "person ada@example.org (u-1)"
    assert browser.ask("GET", "/v1/audit")[0] == 403
    kept = dict(browser.cookies)
    status, content, _ = browser.ask("POST", "/auth/logout", Origin=collector.url)
    assert status == 200
    assert content["end_session"].startswith(f"{provider.issuer}/logout?client_id={CLIENT}")
    assert browser.ask("GET", "/v1/jobs")[0] == 401
    browser.cookies = kept
    assert browser.ask("GET", "/v1/jobs")[0] == 401, "a session that was ended is over"


def test_the_cookies_are_kept_from_scripts_and_other_sites(collector: CollectorProcess) -> None:
    browser = Browser(collector.url)
    browser.sign_in()
    assert len(browser.set_cookies) >= 2
    for line in browser.set_cookies:
        assert "HttpOnly" in line
        assert "SameSite=lax" in line
        assert "Path=/" in line
    session = next(line for line in browser.set_cookies if line.startswith("paceline-session="))
    assert "Max-Age=3600" in session


def test_what_goes_to_the_provider_is_a_code_flow_with_pkce(
    collector: CollectorProcess,
) -> None:
    _, _, location = Browser(collector.url).ask("GET", "/auth/login")
    asked = {name: values[0] for name, values in parse_qs(urlsplit(location).query).items()}
    assert asked["response_type"] == "code"
    assert asked["code_challenge_method"] == "S256"
    assert asked["redirect_uri"] == f"{collector.url}/auth/callback"
    assert len(asked["state"]) >= 43
    assert len(asked["nonce"]) >= 43
    assert "openid" in asked["scope"].split()


def test_a_person_without_a_role_is_not_let_in(
    collector: CollectorProcess, provider: OidcProvider
) -> None:
    provider.user["groups"] = ["others"]
    browser = Browser(collector.url)
    status, content, _ = browser.sign_in()
    assert status == 403
    assert "none of the roles" in content["detail"]
    assert browser.ask("GET", "/v1/jobs")[0] == 401


BAD_CLAIMS = [
    pytest.param({"aud": "another-client"}, "aud", id="wrong audience"),
    pytest.param({"iss": "https://elsewhere.example"}, "iss", id="wrong issuer"),
    pytest.param({"exp": 1_700_000_000}, "expired", id="expired"),
    pytest.param({"exp": None}, "exp", id="without an end"),
    pytest.param({"nbf": 4_000_000_000}, "not yet valid", id="not yet valid"),
    pytest.param({"iat": 4_000_000_000}, "iat|future", id="issued in the future"),
    pytest.param({"sub": None}, "sub", id="without a subject"),
]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        *BAD_CLAIMS,
        pytest.param({"nonce": "another"}, "another login", id="wrong nonce"),
        pytest.param({"nonce": None}, "another login", id="no nonce"),
        pytest.param({"azp": "another-client"}, "azp", id="made for another party"),
        pytest.param({"aud": [CLIENT, "another"]}, "azp", id="two audiences, no party"),
    ],
)
def test_an_id_token_that_says_something_wrong_lets_nobody_in(
    collector: CollectorProcess, provider: OidcProvider, changed: Json, said: str
) -> None:
    def alter(claims: Json) -> None:
        claims.update(changed)
        for name in [name for name, value in claims.items() if value is None]:
            del claims[name]

    provider.alter = alter
    browser = Browser(collector.url)
    status, content, _ = browser.sign_in()
    assert status == 401, content
    assert re.search(said, content["detail"]), content
    assert browser.ask("GET", "/v1/jobs")[0] == 401


@pytest.mark.parametrize("forged", [nonsense, shared_secret, other_key])
def test_a_forged_token_lets_nobody_in(
    collector: CollectorProcess, provider: OidcProvider, forged: Any
) -> None:
    provider.sign = lambda claims: forged(provider, claims)
    browser = Browser(collector.url)
    assert browser.sign_in()[0] == 401
    assert browser.ask("GET", "/v1/jobs")[0] == 401
    token = forged(provider, provider.claims(aud=API))
    assert jwt_status(collector, token)[0] == 401


def test_a_login_counts_once_and_only_in_the_browser_that_began_it(
    collector: CollectorProcess,
) -> None:
    browser = Browser(collector.url)
    back = browser.to_provider()
    began = dict(browser.cookies)
    assert Browser(collector.url).ask("GET", back)[0] == 401, "another browser has not begun it"
    assert browser.ask("GET", back)[0] == 303
    again = Browser(collector.url)
    again.cookies = began
    status, content, _ = again.ask("GET", back)
    assert status == 401
    assert "was used before" in content["detail"]
    other = Browser(collector.url)
    other.to_provider()
    assert other.ask("GET", back)[0] == 401, "its state is another one"
    wrong = Browser(collector.url)
    refused = wrong.to_provider().replace("code=", "code=x")
    status, content, _ = wrong.ask("GET", refused)
    assert status == 401
    assert "invalid_grant" in content["detail"]
    elsewhere = Browser(collector.url)
    mixed_up = re.sub("iss=[^&]*", "iss=https%3A%2F%2Felsewhere.example", elsewhere.to_provider())
    assert elsewhere.ask("GET", mixed_up)[0] == 401


def test_signing_in_leads_back_to_the_page_and_nowhere_else(collector: CollectorProcess) -> None:
    for to in (
        "https://evil.example",
        "//evil.example",
        "/\\evil.example",
        "#x\r\nSet-Cookie: a=b",
    ):
        status, _, location = Browser(collector.url).sign_in(to)
        assert (status, location) == (303, f"{collector.url}/")


def test_a_session_changes_something_only_for_its_own_page(
    collector: CollectorProcess, provider: OidcProvider
) -> None:
    provider.user["groups"] = ["chiefs"]
    browser = Browser(collector.url)
    browser.sign_in()
    wanted = {"scopes": ["read"], "name": "by a person"}
    for headers in (
        {},
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": collector.url, "Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},
    ):
        status, content, _ = browser.ask("POST", "/v1/tokens", wanted, **headers)
        assert status == 403, headers
        assert "only the page itself" in content["detail"]
    status, made, _ = browser.ask("POST", "/v1/tokens", wanted, Origin=collector.url)
    assert status == 201
    entry = browser.ask("GET", "/v1/audit")[1]["entries"][0]
    assert entry["actor"] == "person ada@example.org (u-1)"
    assert entry["target"] == f"token {made['id']} (by a person)"
    assert browser.ask("POST", "/auth/logout")[0] == 403, "nobody else ends the session either"


def test_a_changed_cookie_is_no_session(collector: CollectorProcess) -> None:
    browser = Browser(collector.url)
    browser.sign_in()
    name, value = next(iter(browser.cookies.items()))
    packed, _, mac = value.partition(".")
    content = json.loads(base64.urlsafe_b64decode(packed + "=="))
    content["scopes"] = ["admin"]
    forged = base64.urlsafe_b64encode(json.dumps(content).encode()).rstrip(b"=").decode()
    for bad in (f"{forged}.{mac}", f"{packed}.", packed, "x", "ä", "." * 5000):
        browser.cookies[name] = bad.encode().decode("latin-1")
        assert browser.ask("GET", "/v1/jobs")[0] == 401, bad


def test_programs_come_with_a_jwt_made_for_this_api(
    collector: CollectorProcess, provider: OidcProvider
) -> None:
    good = provider.signed(provider.claims(aud=API))
    assert jwt_status(collector, good) == (200, "")
    assert jwt_status(collector, good, "/v1/audit")[0] == 403
    chief = provider.signed(provider.claims(aud=["other", API], groups="staff chiefs"))
    assert jwt_status(collector, chief, "/v1/audit")[0] == 200
    id_token = provider.signed(provider.claims())
    assert jwt_status(collector, id_token)[0] == 401, "an ID token is no access token"
    nobody = provider.signed(provider.claims(aud=API, groups=[]))
    assert jwt_status(collector, nobody)[0] == 403


@pytest.mark.parametrize(("changed", "said"), BAD_CLAIMS)
def test_a_jwt_that_says_something_wrong_is_refused(
    collector: CollectorProcess, provider: OidcProvider, changed: Json, said: str
) -> None:
    status, detail = jwt_status(
        collector, provider.signed(provider.claims(**{"aud": API, **changed}))
    )
    assert status == 401
    assert re.search(said, detail), detail


def test_new_keys_of_the_provider_are_found_and_invented_ones_make_no_traffic(
    collector: CollectorProcess, provider: OidcProvider
) -> None:
    before = provider.signed(provider.claims(aud=API))
    provider.rotate()
    after = provider.signed(provider.claims(aud=API))
    wait_until(lambda: jwt_status(collector, after)[0] == 200, 30)
    assert jwt_status(collector, before)[0] == 401, "the old key is gone"
    asked = provider.asked["/jwks"]
    stranger = RSAKey.generate_key(2048, {})
    for number in range(20):
        header = {"alg": "RS256", "kid": f"invented-{number}"}
        assert (
            jwt_status(collector, jwt.encode(header, provider.claims(aud=API), stranger))[0] == 401
        )
    assert provider.asked["/jwks"] <= asked + 3


def test_over_https_the_cookies_are_secure_and_bound_to_the_host(
    provider: OidcProvider, tmp_path: Path
) -> None:
    process = collector_for(
        tmp_path / "state", provider, PUBLIC_URL="https://paceline.example",
        SESSION_KEY="k" * 32, OIDC_AUDIENCE="",
    )  # fmt: skip
    browser = Browser(process.url)
    browser.ask("GET", "/auth/login")
    (line,) = browser.set_cookies
    assert line.startswith("__Host-paceline-login=")
    assert "Secure" in line
    status, detail = jwt_status(process, provider.signed(provider.claims()))
    assert status == 401
    assert "PACELINE_SERVE_OIDC_AUDIENCE" in detail
    assert process.stop() == 0


def test_tokens_and_signing_out_work_while_the_provider_is_away(tmp_path: Path) -> None:
    provider = OidcProvider()
    process = collector_for(tmp_path / "state", provider, SESSION_KEY="k" * 32)
    provider.close()
    status, content, _ = Browser(process.url).ask("GET", "/auth/login")
    assert (status, content["type"]) == (503, "urn:paceline:problem:provider-unavailable")
    assert process.client().jobs() == []
    browser = Browser(process.url)
    signed_in = {"sid": "s-1", "name": "ada", "scopes": ["read"], "jobs": ""}
    signer = Signer(hashlib.sha256(b"k" * 32).digest())
    browser.cookies["paceline-session"] = signer.sign("session", signed_in, 60)
    kept = dict(browser.cookies)
    assert browser.ask("GET", "/v1/jobs")[0] == 200
    assert browser.ask("POST", "/auth/logout", Origin=process.url)[:2] == (
        200, {"end_session": None},
    )  # fmt: skip
    assert browser.cookies == {}, "nor does any other gateway see it again"
    browser.cookies = kept
    assert browser.ask("GET", "/v1/jobs")[0] == 401
    assert process.stop() == 0


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"oidc_issuer": "http://elsewhere.example"}, "is not https"),
        ({"public_url": ""}, "PACELINE_SERVE_PUBLIC_URL"),
        ({"oidc_client_id": ""}, "PACELINE_SERVE_OIDC_CLIENT_ID"),
        ({"session_key": "short"}, "at least 32"),
        ({"oidc_read_roles": []}, "nobody could do anything"),
    ],
)
def test_settings_that_do_not_go_together_are_named(changed: dict[str, Any], said: str) -> None:
    settings = {
        "oidc_issuer": "https://id.example", "oidc_client_id": CLIENT,
        "public_url": "https://paceline.example", "oidc_read_roles": ["a"],
    }  # fmt: skip
    OidcPeople(CollectorSettings(**settings))
    with pytest.raises(ConfigError, match=said):
        OidcPeople(CollectorSettings(**{**settings, **changed}))


def test_no_secret_is_in_the_log(collector: CollectorProcess, provider: OidcProvider) -> None:
    browser = Browser(collector.url)
    back = browser.to_provider()
    browser.ask("GET", back)
    bearer = provider.signed(provider.claims(aud=API))
    jwt_status(collector, bearer)
    jwt_status(collector, provider.signed(provider.claims()))
    collector.client().jobs()
    jwt_status(collector, "plt_not-a-token-but-secret")
    time.sleep(0.2)
    log = collector.log.read_text()
    assert "signed in" in log
    code = parse_qs(urlsplit(back).query)["code"][0]
    for secret in (
        TOKEN, SECRET, code, bearer, bearer.split(".")[2], "plt_not-a-token-but-secret",
        *browser.cookies.values(),
    ):  # fmt: skip
        assert secret not in log
