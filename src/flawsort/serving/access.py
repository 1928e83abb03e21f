"""Access control of a server: known host names, holders of the token, its own pages.

A page of another site can make a browser send requests here. They are refused: the host name is
unknown (DNS rebinding), the Origin is another one, and JSON and images need a CORS preflight, which
is never answered. Cookies are not sent from other sites (SameSite=Strict).
"""

from __future__ import annotations

import hashlib
import hmac
import html
import ipaddress
import re
from collections.abc import Sequence
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from fastapi import HTTPException
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from flawsort.core.errors import OptionError
from flawsort.core.text import either

LOOPBACK = ("127.0.0.1", "localhost", "::1")
ANY_HOST = "*"
# The whole state of a run of a million images is smaller.
LARGEST_BODY = 32 * 2**20
TOKEN_LENGTHS = (16, 200)
JSON = "application/json"
REVIEW_ADVICE = "open the address that flawsort review printed"
HEADERS = {
    "content-security-policy": (
        "default-src 'self'; img-src 'self' data: blob:; object-src 'none'; base-uri 'self'; "
        "form-action 'self'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
_HOST = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([^:\[\]@/\s]*))(?::\d*)?")
_READING = ("GET", "HEAD")
_SAFE_METHODS = (*_READING, "OPTIONS")


def is_loopback(host: str) -> bool:
    """Whether a host can be reached from this machine only."""
    if host in LOOPBACK:
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_token(token: str | None, hosts: Sequence[str]) -> None:
    """Refuse a token that is easy to guess, and a host that others can reach without a token."""
    low, high = TOKEN_LENGTHS
    if token is None:
        if open_to := [host for host in hosts if not is_loopback(host)]:
            which = "all addresses of this machine" if open_to[0] == "*" else f"'{open_to[0]}'"
            raise OptionError(
                f"must be given for a host that others can reach. Got no token for {which}.",
                parameter="token",
            )
    elif (
        not (low <= len(token) <= high and token.isascii() and token.isprintable()) or " " in token
    ):
        raise OptionError(
            f"must be {low} to {high} printable ASCII characters without spaces. "
            f"Got {len(token)} characters.",
            parameter="token",
        )


class Guard:
    """Middleware that checks every request, and adds security headers to every answer.

    hosts: accepted host names besides the loopback ones; "*" for any. token: None if everybody who
    reaches the server may use it. largest_body: of a request, in bytes. takes: the content types of
    requests that send something; none that a form of another page can send. open_paths: what
    everybody may read, without the token. advice: how one gets the token.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        hosts: Sequence[str] = (),
        token: str | None = None,
        largest_body: int = LARGEST_BODY,
        takes: Sequence[str] = (JSON,),
        open_paths: Sequence[str] = (),
        advice: str = REVIEW_ADVICE,
    ):
        check_token(token, hosts)
        self._takes, self._open_paths, self._advice = tuple(takes), tuple(open_paths), advice
        self._app = app
        self._largest_body = largest_body
        self._hosts = frozenset(host.lower() for host in (*LOOPBACK, *hosts))
        self._token = None if token is None else token.encode()
        self._pass = hashlib.sha256(b"flawsort review " + (self._token or b"")).hexdigest()
        # Browsers send cookies to all ports of a host, so each server uses its own cookie name.
        self._cookie = f"flawsort-{self._pass[:8]}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            headers = Headers(scope=scope)
            refused = self._refused(scope, headers)
            # A refusal does not read the body; the server discards it.
            app = self._app if refused is None else refused
            await app(scope, _limited(receive, self._largest_body), _with_headers(send))

    def _refused(self, scope: Scope, headers: Headers) -> Response | None:
        """The refusal of a request, or None if the request is allowed."""
        host = headers.get("host", "")
        if ANY_HOST not in self._hosts and _name_of(host) not in self._hosts:
            return _refusal(headers, 400, "This server does not answer to that host name.")
        if refused := _from_elsewhere(scope["method"], headers, host, self._takes):
            return refused
        if refused := _too_long(scope["method"], headers, self._largest_body):
            return refused
        if self._token is None or self._is_open(scope):
            return None
        return self._without_token(scope, headers)

    def _is_open(self, scope: Scope) -> bool:
        return scope["method"] in _READING and scope["path"] in self._open_paths

    def _without_token(self, scope: Scope, headers: Headers) -> Response | None:
        query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        given = [value for name, value in query if name == "token"]
        if given and self._is_token(given[0]):
            rest = urlencode([pair for pair in query if pair[0] != "token"])
            # A path that starts with two slashes would redirect to another host.
            place = quote("/" + scope["path"].lstrip("/\\"))
            onward = RedirectResponse(f"{place}?{rest}" if rest else place, 303)
            onward.set_cookie(
                self._cookie,
                self._pass,
                httponly=True,
                samesite="strict",
                secure=scope["scheme"] == "https",
            )
            return onward
        scheme, _, bearer = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and self._is_token(bearer.strip()):
            return None
        if hmac.compare_digest(_cookie(headers, self._cookie).encode(), self._pass.encode()):
            return None
        answer = _refusal(headers, 401, f"A token is needed: {self._advice}.")
        answer.headers["www-authenticate"] = "Bearer"
        return answer

    def _is_token(self, text: str) -> bool:
        return hmac.compare_digest(text.encode("utf-8", "replace"), self._token or b"")


def _from_elsewhere(
    method: str, headers: Headers, host: str, takes: Sequence[str]
) -> Response | None:
    """A refusal of a request that a page of another site has sent, or None."""
    site, mode = headers.get("sec-fetch-site", ""), headers.get("sec-fetch-mode", "")
    if site in ("cross-site", "same-site") and not (method == "GET" and mode == "navigate"):
        return _refusal(headers, 403, "This request comes from a page of another site.")
    if method in _SAFE_METHODS:
        return None
    origin = headers.get("origin")  # programs other than browsers send none
    if origin is not None and _place_of(origin) != host.lower():
        return _refusal(headers, 403, "This request comes from a page of another origin.")
    if headers.get("content-type", "").partition(";")[0].strip().lower() not in takes:
        return _refusal(headers, 415, f"The content type must be {either(takes)}.")
    return None


def _too_long(method: str, headers: Headers, most: int) -> Response | None:
    """A refusal of a request that announces a body of more than that many bytes, or None."""
    if method in _SAFE_METHODS:
        return None
    length = headers.get("content-length", "0")
    if not (length.isascii() and length.isdigit() and len(length) < 16):
        return _refusal(headers, 400, "The content length must be a number.")
    if int(length) > most:
        return _refusal(headers, 413, _too_large(most))
    return None


def _refusal(headers: Headers, status: int, message: str) -> Response:
    if "text/html" in headers.get("accept", ""):
        page = f"<!doctype html><title>flawsort</title><p>{html.escape(message)}"
        return HTMLResponse(page, status)
    return JSONResponse({"detail": message}, status)


def _name_of(host: str) -> str:
    """The host header without its port: "[::1]:80" gives "::1"; "" if it is not valid."""
    parts = _HOST.fullmatch(host)
    return (parts[1] or parts[2]).lower().removesuffix(".") if parts else ""


def _place_of(origin: str) -> str | None:
    """Host and port of an Origin; None if it has none, such as "null"."""
    try:
        parts = urlsplit(origin)
    except ValueError:
        return None
    return parts.netloc.lower() if parts.scheme in ("http", "https") else None


def _cookie(headers: Headers, name: str) -> str:
    try:
        found = SimpleCookie(headers.get("cookie", "")).get(name)
    except CookieError:
        return ""
    return "" if found is None else found.value


def _limited(receive: Receive, most: int) -> Receive:
    """Limit the length of bodies that are sent without a content length to that many bytes."""
    seen = 0

    async def wrapped() -> Message:
        nonlocal seen
        message = await receive()
        seen += len(message.get("body", b""))
        if seen > most:
            raise HTTPException(413, _too_large(most))
        return message

    return wrapped


def _too_large(most: int) -> str:
    return f"The body must be at most {most:,} bytes."


def _with_headers(send: Send) -> Send:
    async def wrapped(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
            headers.setdefault("cache-control", "no-store")
        await send(message)

    return wrapped
