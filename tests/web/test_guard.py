"""Who may ask: hosts, origins, tokens, methods; and the headers of every answer."""

from __future__ import annotations

import json
import signal
import ssl
import subprocess
import sys
import urllib.request
from http.client import HTTPSConnection
from pathlib import Path

import pytest

from logwright.errors import WrongUse
from logwright.servers.security import Address, Protection
from logwright.web import WebServer
from tests.support.certificates import Authority
from tests.web.support import WAIT_SECONDS, Site, serving

TOKEN = "a-token-of-twenty-eight-chars"


def test_every_answer_forbids_inline_code_frames_and_other_sites(site: Site) -> None:
    for path in ("/", "/api/about", "/static/app.js", "/api/journal", "/missing", "/favicon.ico"):
        headers = site.ask(path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cross-origin-resource-policy"] == "same-origin"
        assert "access-control-allow-origin" not in headers


def test_page_has_no_inline_code_and_nothing_of_other_servers() -> None:
    static = Path(__file__).resolve().parents[2] / "src" / "logwright" / "web" / "static"
    for path in static.iterdir():
        text = path.read_text().replace('"http://www.w3.org/2000/svg"', "")
        assert "http://" not in text, path.name
        assert "https://" not in text, path.name
        for forbidden in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", " style="):
            assert forbidden not in text, f"{path.name} has {forbidden}"
        if path.suffix == ".html":
            assert text.count("<script") == text.count('<script type="module" src="/static/')


@pytest.mark.parametrize("host", ["evil.example", "evil.example:7880", "127.0.0.1.evil.example", "", "[::1", "a b"])
def test_host_that_is_not_ours_is_refused(site: Site, host: str) -> None:
    assert site.ask("/api/overview", headers={"Host": host}).status in (400, 421)


@pytest.mark.parametrize("host", ["localhost", "localhost:1234", "127.0.0.1", "[::1]:80", "192.0.2.7"])
def test_addresses_and_localhost_are_ours(site: Site, host: str) -> None:
    assert site.ask("/api/about", headers={"Host": host}).status == 200


def test_name_that_was_given_is_ours(journals: Path) -> None:
    with serving(journals, hosts=("journals.example.org",)) as site:
        assert site.ask("/api/about", headers={"Host": "Journals.example.org:7880"}).status == 200
        assert site.ask("/api/about", headers={"Host": "other.example.org"}).status == 421


def test_other_origins_and_sites_are_refused(site: Site) -> None:
    host = str(site.server.address)
    assert site.ask("/api/about", headers={"Origin": f"http://{host}"}).status == 200
    for origin in ("https://evil.example", f"https://{host}", "null", "http://localhost:1"):
        assert site.ask("/api/about", headers={"Origin": origin}).status == 403, origin
    assert site.ask("/api/about", headers={"Sec-Fetch-Site": "cross-site"}).status == 403
    assert site.ask("/", headers={"Sec-Fetch-Site": "cross-site"}).status == 200  # a link to the page


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_only_reading_is_answered(site: Site, method: str) -> None:
    assert site.ask("/api/overview", method=method).status == 405


def test_files_beside_the_page_are_not_served(site: Site) -> None:
    for path in ("/static/../app.py", "/static/%2e%2e/app.py", "/static//etc/passwd", "/static/..%2fapp.py"):
        assert site.ask(path).status in (404, 405), path


def protection_with(tmp_path: Path) -> Protection:
    file = tmp_path / "tokens"
    file.write_text(f"{TOKEN}\n")
    file.chmod(0o600)
    return Protection.load(tokens=file)


def test_token_is_needed_for_everything_but_the_form_that_asks_for_it(journals: Path, tmp_path: Path) -> None:
    with serving(journals, protection_with(tmp_path)) as site:
        for path in ("/api/overview", "/api/openapi.json", "/static/app.js", "/api/journal/live?name=orders"):
            assert site.ask(path).status == 401, path
        assert site.ask("/").headers["location"] == "/login"
        assert site.ask("/login").status == 200
        assert site.ask("/api/about", headers={"Authorization": f"Bearer {TOKEN}"}).status == 200
        assert site.ask("/api/about", headers={"Authorization": f"Bearer {TOKEN}x"}).status == 401


def test_form_gives_a_cookie_that_scripts_cannot_read_and_that_is_not_the_token(journals: Path, tmp_path: Path) -> None:
    with serving(journals, protection_with(tmp_path)) as site:
        kind = {"Content-Type": "application/x-www-form-urlencoded"}
        wrong = site.ask("/login", method="POST", headers=kind, body="token=another-token-of-this-size")
        assert wrong.headers["location"] == "/login?again"
        assert "set-cookie" not in wrong.headers
        right = site.ask("/login", method="POST", headers=kind, body=f"token={TOKEN}")
        cookie = right.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "samesite=strict" in cookie.lower()
        assert TOKEN not in cookie
        value = cookie.partition(";")[0]
        assert site.ask("/api/about", headers={"Cookie": value}).status == 200
        assert site.ask("/api/about", headers={"Cookie": f"{value}0"}).status == 401
        foreign = {**kind, "Origin": "https://evil.example"}
        assert site.ask("/login", method="POST", headers=foreign, body=f"token={TOKEN}").status == 403
        assert site.ask("/login", method="POST", headers=kind, body="token=" + "x" * 10_000).status == 413


def test_address_beyond_loopback_needs_tls_and_tokens(journals: Path, tmp_path: Path) -> None:
    with pytest.raises(WrongUse, match="reachable from other machines"):
        WebServer(journals, Address("0.0.0.0", 0))
    with pytest.raises(WrongUse, match="reachable from other machines"):
        WebServer(journals, Address("0.0.0.0", 0), protection_with(tmp_path))


def test_page_is_served_by_tls_with_tokens(journals: Path, tmp_path: Path) -> None:
    authority = Authority(tmp_path / "authority")
    own = authority.issue("server")
    tokens = tmp_path / "tokens"
    tokens.write_text(f"{TOKEN}\n")
    tokens.chmod(0o600)
    protection = Protection.load(certificate=own.certificate, key=own.key, tokens=tokens)
    with serving(journals, protection) as site:
        host, port = site.server.address.host, site.server.address.port
        connection = HTTPSConnection(
            host, port, timeout=WAIT_SECONDS, context=ssl.create_default_context(cafile=str(authority.path))
        )
        connection.request("GET", "/api/overview")
        assert _read(connection) == (401, None)
        kind = {"Content-Type": "application/x-www-form-urlencoded", "Origin": f"https://{host}:{port}"}
        connection.request("POST", "/login", f"token={TOKEN}", kind)
        status, cookie = _read(connection)
        assert (status, "Secure" in str(cookie)) == (303, True)
        connection.request("GET", "/api/overview", headers={"Cookie": str(cookie).partition(";")[0]})
        assert _read(connection)[0] == 200
        connection.close()
        with pytest.raises(ConnectionError):
            site.ask("/api/about")  # without TLS


def _read(connection: HTTPSConnection) -> tuple[int, str | None]:
    answer = connection.getresponse()
    answer.read()
    return answer.status, answer.getheader("set-cookie")


def test_errors_are_json_without_traces(site: Site) -> None:
    found = site.ask("/api/journal?name=%3Cscript%3E")
    assert found.status == 404
    assert found.headers["content-type"] == "application/json"
    assert "<script>" in json.loads(found.body)["error"]


def test_program_prints_its_url_answers_and_ends_with_sigterm(journals: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "logwright", "web", str(journals), "--listen", "127.0.0.1:0", "--json"],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        about = json.loads(process.stdout.readline())
        assert (about["serving"], about["root"]) == ("web", str(journals))
        with urllib.request.urlopen(f"{about['url']}api/about", timeout=WAIT_SECONDS) as answer:
            assert answer.status == 200
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT_SECONDS) == 0
    finally:
        process.kill()
        process.communicate(timeout=WAIT_SECONDS)
