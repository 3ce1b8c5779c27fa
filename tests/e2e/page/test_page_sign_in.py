from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.page.conftest import OpenPage
from tests.e2e.page.looking import until_text
from tests.integration.collector.kit import CollectorProcess, bodies, post_all, senders
from tests.integration.collector.oidc_provider import OidcProvider
from tests.integration.collector.people_kit import collector_for
from tests.simulator.job import Scenario, simulate

pytestmark = pytest.mark.e2e


@pytest.fixture
def collector(tmp_path: Path) -> Iterator[CollectorProcess]:
    provider = OidcProvider()
    provider.user["groups"] = ["chiefs"]
    process = collector_for(tmp_path / "state", provider)
    yield process
    assert process.stop() == 0
    provider.close()


def test_somebody_signs_in_with_the_provider_changes_settings_without_a_token_and_signs_out(
    collector: CollectorProcess, open_page: OpenPage
) -> None:
    page = open_page(f"{collector.url}/#/jobs/nope", refused=True)
    page.get_by_role("link", name="Sign in").click()
    page.get_by_role("heading", name="No such job", level=1).wait_for()
    assert page.url == f"{collector.url}/#/jobs/nope"
    assert page.evaluate("document.cookie") == "", "no script reads the session"
    job = simulate(Scenario(steps=20))
    post_all(collector.client(), bodies(job, senders(job, job="llm"), end=False))
    page.evaluate("location.hash = '#/jobs/llm?at=settings'")
    until_text(page, "#settings", "Nobody asked for anything.")
    page.get_by_label("Every n-th step").fill("4")
    page.get_by_role("button", name="Apply").press("Enter")
    until_text(page, "#settings .words", "by person ada@example.org (u-1)")
    assert collector.client().get_json("/v1/jobs/llm/settings")["stride"] == 4
    assert page.locator("dialog.token").count() == 0
    way_out = page.get_by_role("button", name="Sign out")
    way_out.wait_for()
    assert way_out.get_attribute("title") == "person ada@example.org (u-1)"
    with page.expect_navigation():
        way_out.click()
    assert "/logout?client_id=paceline" in page.url
    page.goto(collector.url)
    page.get_by_role("link", name="Sign in").wait_for()
