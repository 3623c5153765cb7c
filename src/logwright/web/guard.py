"""Guard: which requests are answered, and the headers that every answer has.

A page of another site must not read journals through the browser of this user. So the header `Host` must name this
server (a site cannot point its own name at us), and `Origin`, if there is one, must be the page itself. With tokens, a
program sends `Authorization: Bearer TOKEN`; a person enters the token once, and the browser keeps a cookie that is
derived from it and that scripts cannot read. Only GET is answered, and the form of the token is the only POST.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import secrets
from collections.abc import Collection
from http.cookies import CookieError, SimpleCookie
from typing import Final
from urllib.parse import parse_qs, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..servers.security import Protection
from .files import STATIC

COOKIE: Final = "logwright_web"
_MOST_FORM_BYTES: Final = 4096
_OPEN_PATHS: Final = ("/login", "/static/style.css", "/static/login.js", "/favicon.ico")
"""What is served without a token: the form that asks for it."""
_HEADERS: Final = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


class Guard:
    """Wraps the application. `hosts` are names, besides addresses and localhost, under which it is reached."""

    def __init__(self, app: ASGIApp, protection: Protection, hosts: Collection[str] = ()) -> None:
        self._app = app
        self._protection = protection
        self._hosts = frozenset(host.lower() for host in hosts)
        secret = secrets.token_bytes(32)
        self._cookies = {
            token: hmac.new(secret, token, hashlib.sha256).hexdigest().encode() for token in protection.tokens
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers[name] = value
            await send(message)

        request = Request(scope, receive)
        answer = self._refusal(scope) or await self._login(request)
        await (answer or self._app)(scope, receive, send_guarded)

    # --- who asks ---------------------------------------------------------------------------------------------------

    def _refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if not self._is_ours(host):
            return _refused(421, f"this server is not called {host!r}; see --host-name")
        origin = headers.get("origin")
        if origin is not None and origin.lower() != f"{self._scheme}://{host.lower()}":
            return _refused(403, "requests from other sites are refused")
        if headers.get("sec-fetch-site") == "cross-site" and scope["path"].startswith("/api"):
            return _refused(403, "requests from other sites are refused")
        is_form = scope["path"] == "/login" and scope["method"] == "POST"
        if scope["method"] not in ("GET", "HEAD") and not is_form:
            return _refused(405, "this server changes nothing: only GET is answered")
        return None

    @property
    def _scheme(self) -> str:
        return "https" if self._protection.has_tls else "http"

    def _is_ours(self, host: str) -> bool:
        """Whether a `Host` names this server. An address is safe: only a name can be pointed elsewhere."""
        try:
            name = (urlsplit(f"//{host}").hostname or "").lower()
        except ValueError:
            return False
        if name in self._hosts or name == "localhost":
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True

    # --- tokens -----------------------------------------------------------------------------------------------------

    async def _login(self, request: Request) -> Response | None:
        """The answer to a request without a token, or to the form that sends one; None if the request may pass."""
        if not self._protection.tokens:
            return RedirectResponse("/", 303) if request.url.path == "/login" else None
        if request.url.path == "/login":
            return await self._take_token(request) if request.method == "POST" else FileResponse(STATIC / "login.html")
        if request.url.path in _OPEN_PATHS or self._is_admitted(request.headers):
            return None
        if request.url.path == "/":
            return RedirectResponse("/login", 303)
        return _refused(401, "a token is needed: Authorization: Bearer TOKEN")

    def _is_admitted(self, headers: Headers) -> bool:
        kind, _, token = headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer":
            return self._protection.admits(token.strip().encode())
        try:
            cookie = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
        except CookieError:
            return False
        given = b"" if cookie is None else cookie.value.encode()
        admitted = False
        for known in self._cookies.values():
            admitted |= hmac.compare_digest(known, given)
        return admitted

    async def _take_token(self, request: Request) -> Response:
        body = b""
        async for part in request.stream():
            body += part
            if len(body) > _MOST_FORM_BYTES:
                return _refused(413, "the form is too large")
        token = parse_qs(body.decode("utf-8", "replace")).get("token", [""])[0].strip().encode()
        if not self._protection.admits(token):
            return RedirectResponse("/login?again", 303)
        answer = RedirectResponse("/", 303)
        value = self._cookies[token].decode()
        answer.set_cookie(COOKIE, value, httponly=True, samesite="strict", secure=self._protection.has_tls)
        return answer


def _refused(status: int, message: str) -> Response:
    return JSONResponse({"error": message}, status)
