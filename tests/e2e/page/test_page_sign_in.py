from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.page.conftest import OpenPage
from tests.integration.collector.kit import CollectorProcess
from tests.integration.collector.oidc_provider import OidcProvider
from tests.integration.collector.people_kit import collector_for

pytestmark = pytest.mark.e2e


@pytest.fixture
def collector(tmp_path: Path) -> Iterator[CollectorProcess]:
    provider = OidcProvider()
    process = collector_for(tmp_path / "state", provider)
    yield process
    assert process.stop() == 0
    provider.close()


def test_somebody_signs_in_with_the_provider_sees_the_page_and_signs_out(
    collector: CollectorProcess, open_page: OpenPage
) -> None:
    page = open_page(f"{collector.url}/#/jobs/nope", refused=True)
    page.get_by_role("link", name="Sign in").click()
    page.get_by_role("heading", name="No such job", level=1).wait_for()
    assert page.url == f"{collector.url}/#/jobs/nope"
    assert page.evaluate("document.cookie") == "", "no script reads the session"
    way_out = page.get_by_role("button", name="Sign out")
    way_out.wait_for()
    assert way_out.get_attribute("title") == "person ada@example.org (u-1)"
    with page.expect_navigation():
        way_out.click()
    assert "/logout?client_id=paceline" in page.url
    page.goto(collector.url)
    page.get_by_role("link", name="Sign in").wait_for()
