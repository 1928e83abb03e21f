"""Who gets in: hosts, origins, tokens, paths that lead elsewhere, and names of every kind."""

from __future__ import annotations

import asyncio
import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.responses import PlainTextResponse

from flawsort import OptionError, Run, open_run
from flawsort.review.app import make_app
from flawsort.runs.folder import save_run
from flawsort.serving import access as guard
from flawsort.serving.access import Guard, is_loopback
from helpers.html import Page
from helpers.review_client import HOST, Client, RunClient, check_state, closing_libraries, copied

TOKEN = "0123456789abcdef-token"
NAMES = (
    "<script>alert(1)</script>", "\"><img src=x onerror=alert(1)>", "../../etc/passwd", "a/b\\c",
    "{{ 7 * 7 }}", "${7*7}", "'; DROP TABLE edits; --", "\U0001f600 \u00fcml\u00e4ut",
    "\u4e2d\u6587", "a" * 200, "%00", "=cmd|' /C calc'!A0", "&lt;", "\u200b\u00a0x", "NaN", "null",
)  # fmt: skip
REFUSED_NAMES = ("a\x00b", "a\nb", "\x7f", "\u202eabc", "a" * 300, "\ud83d", "a\x85b")


@pytest.fixture(scope="module", autouse=True)
def _let_go() -> Iterator[None]:
    with closing_libraries():
        yield


@pytest.fixture
def folder(saved: Path, tmp_path: Path) -> Path:
    return copied(saved, tmp_path)


@pytest.fixture
def client(folder: Path) -> RunClient:
    return RunClient(make_app([folder]))


@pytest.fixture(scope="module")
def looker(saved: Path, tmp_path_factory: pytest.TempPathFactory) -> RunClient:
    return RunClient(make_app([copied(saved, tmp_path_factory.mktemp("looked-at"))]))


@pytest.fixture(scope="module")
def locked(saved: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copied(saved, tmp_path_factory.mktemp("locked"))


class TestHosts:
    @pytest.mark.parametrize(
        "host", [HOST, "localhost", "LOCALHOST:80", "localhost.:80", "[::1]:8765", "127.0.0.1"]
    )
    def test_loopback_names(self, looker: RunClient, host: str) -> None:
        assert looker.get("/r/run/api/state", host=host).status == 200

    @pytest.mark.parametrize(
        "host",
        ["", "evil.example", "127.0.0.1.evil.example", "evil.example:8765", "localhost@evil", ":80",
         "[::1", "[::2]", "0.0.0.0", "127.0.0.1 evil", "10.0.0.1", "xn--localhost"],
    )  # fmt: skip
    def test_others_are_refused(self, looker: RunClient, host: str) -> None:
        """A name that somebody pointed at this machine (DNS rebinding) must not get in."""
        for target in ("/", "/r/run/", "/r/run/api/state", "/openapi.json", "/static/x", "/none"):
            reply = looker.get(target, host=host)
            assert (reply.status, reply.detail) == (
                400,
                "This server does not answer to that host name.",
            )

    def test_a_host_that_was_given(self, folder: Path) -> None:
        app = make_app([folder], TOKEN, hosts=["Parts.local"])
        asks = {"authorization": f"Bearer {TOKEN}"}
        assert RunClient(app, "parts.local:80", asks).api("state").status == 200
        assert RunClient(app, HOST, asks).api("state").status == 200
        assert RunClient(app, "other.local:80", asks).api("state").status == 400

    def test_any_host(self, folder: Path) -> None:
        app = make_app([folder], TOKEN, hosts=["*"])
        assert RunClient(app, "other.local:80").api("state").status == 401
        asks = {"authorization": f"Bearer {TOKEN}"}
        assert RunClient(app, "other.local:80", asks).api("state").status == 200

    @pytest.mark.parametrize(
        ("hosts", "which"),
        [
            (["0.0.0.0"], "'0.0.0.0'"),
            (["*"], "all addresses of this machine"),
            (["127.0.0.1", "parts.local"], "'parts.local'"),
        ],
    )
    def test_others_need_a_token(self, folder: Path, hosts: list[str], which: str) -> None:
        said = (
            rf"^token must be given for a host that others can reach\. Got no token for {which}\."
        )
        with pytest.raises(OptionError, match=said):
            make_app([folder], hosts=hosts)
        with pytest.raises(OptionError, match=said):
            Guard(PlainTextResponse("it"), hosts=hosts)

    def test_what_is_this_machine(self) -> None:
        assert all(map(is_loopback, ["127.0.0.1", "localhost", "::1", "127.1.2.3"]))
        assert not any(map(is_loopback, ["", "0.0.0.0", "::", "*", "10.0.0.1", "parts", "1.1.1.1"]))


class TestOrigins:
    BODY = {"version": 0, "kind": "name", "payload": {"group": 0, "name": "x"}}  # noqa: RUF012

    @pytest.mark.parametrize(
        "origin",
        ["http://evil.example", "null", "http://127.0.0.1:9999", "http://127.0.0.1", "file://",
         "http://localhost:8765", "http://[", f"http://{HOST}.evil.example", "chrome-extension://x",
         f"http://evil@{HOST}"],
    )  # fmt: skip
    def test_of_other_pages(self, looker: RunClient, origin: str) -> None:
        for what in ("edits", "undo", "redo"):
            reply = looker.post(f"/r/run/api/{what}", self.BODY, origin=origin)
            assert reply.status == 403
            assert "another origin" in reply.detail
        assert looker.state()["version"] == 0

    def test_its_own_and_of_programs(self, client: RunClient) -> None:
        assert client.post("/r/run/api/edits", self.BODY).status == 200
        body = {**self.BODY, "version": 1}
        assert client.post("/r/run/api/edits", body, origin="").status == 200
        body = {**self.BODY, "version": 2}
        secure = f"https://{HOST}"  # behind something that speaks TLS
        assert client.post("/r/run/api/edits", body, origin=secure).status == 200

    @pytest.mark.parametrize("site", ["cross-site", "same-site"])
    def test_what_browsers_say(self, looker: RunClient, site: str) -> None:
        said = {"sec_fetch_site": site, "sec_fetch_mode": "no-cors"}
        for target in ("/r/run/thumb/0.jpg", "/r/run/export/csv", "/r/run/api/state"):
            assert looker.get(target, **said).status == 403
        assert looker.post("/r/run/api/edits", self.BODY, **said).status == 403
        followed = {"sec_fetch_site": site, "sec_fetch_mode": "navigate"}
        assert looker.get("/r/run/", **followed).status == 200  # a link in a message
        assert looker.post("/r/run/api/edits", self.BODY, **followed).status == 403
        own = {"sec_fetch_site": "same-origin", "sec_fetch_mode": "cors"}
        assert looker.get("/r/run/api/state", **own).status == 200

    @pytest.mark.parametrize(
        "kind",
        ["", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x",
         "text/json", "application/jsonp", "text/plain; application/json"],
    )  # fmt: skip
    def test_only_json_is_taken(self, looker: RunClient, kind: str) -> None:
        """The kinds that a form of another page can send without asking first."""
        reply = looker.post("/r/run/api/edits", self.BODY, content_type=kind)
        assert reply.status == 415
        assert looker.state()["version"] == 0

    def test_json_with_an_encoding(self, client: RunClient) -> None:
        kind = "Application/JSON; charset=utf-8"
        assert client.post("/r/run/api/edits", self.BODY, content_type=kind).status == 200

    def test_nobody_is_allowed_to_ask_from_elsewhere(self, looker: RunClient) -> None:
        headers = {"origin": "http://evil.example", "access-control-request-method": "POST"}
        asked = looker.send("OPTIONS", "/r/run/api/edits", headers=headers)
        assert asked.status == 405
        for reply in (asked, looker.get("/r/run/api/state", origin="http://evil.example")):
            assert not [name for name in reply.headers if name.startswith("access-control")]

    @pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "TRACE", "BREW"])
    def test_other_methods(self, looker: RunClient, method: str) -> None:
        json = {"content-type": "application/json"}
        assert looker.send(method, "/r/run/api/edits", b"{}", json).status == 405
        assert looker.send(method, "/r/run/api/edits").status == 415


class TestTokens:
    def test_nothing_without(self, locked: Path) -> None:
        client = RunClient(make_app([locked], TOKEN))
        for target in ("/", "/r/run/", "/r/run/api/state", "/r/run/thumb/0.jpg", "/openapi.json",
                       "/static/main.js", "/none", "/?token=", "/?token=wrong-token-0123456789",
                       f"/?token={TOKEN.upper()}", f"/?Token={TOKEN}"):  # fmt: skip
            reply = client.get(target)
            assert (reply.status, client.cookies) == (401, {})
            assert reply.headers["www-authenticate"] == "Bearer"
            assert "A token is needed" in reply.detail
        assert client.post("/r/run/api/undo", {"version": 0}).status == 401
        page = client.get("/", accept="text/html")
        assert page.headers["content-type"].startswith("text/html")

    def test_once_in_the_address_then_a_cookie(self, locked: Path) -> None:
        client = RunClient(make_app([locked], TOKEN))
        reply = client.get(f"/r/run/?a=1&token={TOKEN}&b=%26")
        assert (reply.status, reply.headers["location"]) == (303, "/r/run/?a=1&b=%26")
        cookie = reply.headers["set-cookie"].lower()
        assert "httponly" in cookie
        assert "samesite=strict" in cookie
        assert "path=/" in cookie
        assert TOKEN not in cookie
        assert client.get("/r/run/").status == 200
        assert client.api("state").status == 200
        [name] = client.cookies
        client.cookies[name] = client.cookies[name][:-1] + "x"
        assert client.api("state").status == 401
        for odd in ("\u00e9", "a;b=\x01", "=", '"'):
            client.cookies[name] = odd
            assert client.api("state").status == 401

    def test_the_redirect_stays_here(self, locked: Path) -> None:
        client = Client(make_app([locked], TOKEN))
        for path in ("//evil.example/", "/\\evil.example/", "///evil.example"):
            place = client.get(f"{path}?token={TOKEN}").headers["location"]
            assert re.match(r"/[^/\\]", place), place

    def test_bearer(self, locked: Path) -> None:
        app = make_app([locked], TOKEN)
        asks = {f"Bearer {TOKEN}": 200, f"bearer  {TOKEN}": 200, "Bearer": 401, "Bearer x": 401,
                f"Basic {TOKEN}": 401, TOKEN: 401, "Bearer \u00e9": 401}  # fmt: skip
        for given, status in asks.items():
            reply = RunClient(app, headers={"authorization": given}).api("state")
            assert reply.status == status, given

    def test_each_server_has_its_own_cookie(self, locked: Path) -> None:
        """Browsers send the cookies of a host to all of its ports."""
        one, other = (Client(make_app([locked], f"{TOKEN}{n}")) for n in (1, 2))
        one.get(f"/?token={TOKEN}1")
        other.get(f"/?token={TOKEN}2")
        assert not one.cookies.keys() & other.cookies.keys()
        other.cookies = dict(one.cookies)
        assert other.get("/r/run/").status == 401

    @pytest.mark.parametrize("token", ["", "short", "a" * 201, "a b" * 9, "\u00e9" * 20, "a\n" * 9])
    def test_tokens_that_are_none(self, locked: Path, token: str) -> None:
        with pytest.raises(OptionError, match=r"^token must be 16 to 200 printable ASCII"):
            make_app([locked], token)


class TestHeaders:
    TARGETS = ("/", "/r/run/", "/r/run/api/state", "/r/run/thumb/0.jpg", "/r/run/export/csv",
               "/none", "/r/none/", "/openapi.json", "/r/run/api/similar/x")  # fmt: skip

    @pytest.mark.parametrize("target", TARGETS)
    def test_on_every_answer(self, looker: RunClient, target: str) -> None:
        for reply in (looker.get(target), looker.get(target, host="evil.example")):
            for name, value in guard.HEADERS.items():
                assert reply.headers[name] == value
            assert "cache-control" in reply.headers
            assert "server" not in reply.headers

    def test_the_policy(self) -> None:
        policy = guard.HEADERS["content-security-policy"]
        rules = dict(rule.strip().partition(" ")[::2] for rule in policy.split(";"))
        assert rules["default-src"] == "'self'"
        assert rules["frame-ancestors"] == "'none'"
        assert "script-src" not in rules
        assert "unsafe" not in policy
        assert "http" not in policy

    def test_what_changes_is_not_kept(self, looker: RunClient) -> None:
        assert "no-cache" in looker.api("state").headers["cache-control"]
        assert looker.api("queue").headers["cache-control"] == "no-store"
        assert looker.get("/").headers["cache-control"] == "no-store"


class TestBodies:
    def test_too_long_by_its_own_word(self, looker: RunClient) -> None:
        length = str(guard.LARGEST_BODY + 1)
        reply = looker.post("/r/run/api/edits", b"{}", content_length=length)
        assert reply.status == 413
        for odd in ("x", "-1", "1e9", "9" * 400, "\u00b2"):
            reply = looker.post("/r/run/api/edits", b"{}", content_length=odd)
            assert reply.status == 400

    def test_too_long_without_a_word(self, looker: RunClient) -> None:
        strict = RunClient(Guard(looker.app, largest_body=1000))
        body = b'{"version": 0, "kind": "cut", "payload": {"k": 3}}'
        long = body + b" " * 1000
        reply = strict.post("/r/run/api/edits", long, content_length="")
        assert (reply.status, reply.detail) == (413, "The body must be at most 1,000 bytes.")
        assert looker.state()["version"] == 0

    def test_nothing_but_http(self) -> None:
        """Web sockets are not asked about their origin by browsers, so there are none."""
        asked: list[str] = []

        async def app(scope: object, receive: object, send: object) -> None:
            asked.append("it")

        async def nothing(*_: object) -> dict[str, object]:
            return {}

        asyncio.run(Guard(app)({"type": "websocket"}, nothing, nothing))  # type: ignore[arg-type]
        assert asked == []
        asyncio.run(Guard(app)({"type": "lifespan"}, nothing, nothing))  # type: ignore[arg-type]
        assert asked == ["it"]
        assert Client(Guard(PlainTextResponse("it"))).get("/").body == b"it"


class TestPaths:
    @pytest.mark.parametrize(
        "target",
        [
            "/static/../app.py", "/static/%2e%2e/app.py", "/static/..%2fapp.py",
            "/static/....//app.py", "/static//etc/passwd", "/static/%2Fetc%2Fpasswd",
            "/static/\\..\\app.py", "/static/main.js%00.png", "/static/", "/static/.",
            "/r/../run/api/state", "/r/%2e%2e/api/state", "/r/..%2frun/api/state",
            "/r/run%2f..%2frun/api/state", "/r//api/state", "/r/run%00/api/state",
            "/r/%ff%fe/api/state", "/r/" + "a" * 5000 + "/api/state",
            "/r/run/thumb/../manifest.json", "/r/run/thumb/%2e%2e%2fmanifest.json.jpg",
            "/r/run/thumb/0.jpg/../../manifest.json", "/r/run/manifest.json", "/r/run/edits.sqlite",
            "/r/run/image//etc/passwd.jpg", "/r/run/export/..%2f..%2fetc",
            "/r/run/assigned/..%2f..%2f/thumb/0.jpg", "/r/run/assigned/%2e%2e/thumb/0.jpg",
            "/r/run/assigned/../thumb/0.jpg", "/etc/passwd", "//etc/passwd", "/%2e%2e/%2e%2e/etc",
            "/r/RUN/api/state", "/r/ru\u0308n/api/state".encode().decode("latin-1"),
        ],
    )  # fmt: skip
    def test_that_lead_elsewhere(self, looker: RunClient, target: str) -> None:
        reply = looker.get(target)
        assert reply.status in (404, 422), reply.body[:200]
        assert b"flawsort-run" not in reply.body
        assert b"root:" not in reply.body
        assert b"def make_app" not in reply.body

    def test_paths_of_the_table_are_not_told(self, looker: RunClient, folder: Path) -> None:
        path = open_run(folder).table["path"][0]
        place = str(Path(path).parent).encode()
        for what in ("api/run", "api/state", "api/queue", "api/assigned", ""):
            assert place not in looker.get(f"/r/run/{what}").body

    def test_a_run_cannot_name_files_that_it_did_not_see(
        self, folder: Path, tmp_path: Path
    ) -> None:
        """Even a run from a stranger shows only what it has the SHA-256 of."""
        run = open_run(folder)
        secret = tmp_path / "secret.txt"
        secret.write_text("secret")
        paths = [str(secret), "/etc/passwd", "/dev/zero", str(tmp_path), "\x00", "relative.png"]
        table = {**run.table, "path": paths + run.table["path"][len(paths) :]}
        bare = dataclasses.replace(run, table=table, thumbnails=(b"",) * len(run.thumbnails))
        save_run(bare, tmp_path / "stranger")
        client = RunClient(make_app([tmp_path / "stranger"], cache=tmp_path / "cache"))
        for row in range(len(paths)):
            for what in ("image", "thumb"):
                reply = client.get(f"/r/stranger/{what}/{row}.jpg")
                assert reply.status == 404
                assert b"secret" not in reply.body.replace(b"secret.txt", b"")
        assert client.get(f"/r/stranger/image/{len(paths)}.jpg").status == 200


class TestNames:
    def test_of_groups(self, client: RunClient) -> None:
        for name in NAMES:
            state = client.edit("name", group=0, name=name).data
            assert state["groups"][0]["name"] == name.strip()
            check_state(state, 14)
            assert client.get("/r/run/api/state").headers["content-type"] == "application/json"
        for name in NAMES[:4]:
            client.edit("name", group=0, name=name)
            for format in ("folders", "cvat"):
                assert client.get(f"/r/run/export/{format}").status == 200, name

    def test_of_groups_that_are_refused(self, client: RunClient) -> None:
        for name in REFUSED_NAMES:
            assert client.edit("name", group=0, name=name).status == 422, repr(name)
        assert client.state()["version"] == 0

    @pytest.mark.parametrize(
        "name",
        ["<script>alert(1)<", "a b&c", "\u00e9\U0001f600", "%2e%2e", "a'b\"c", "{{ 7*7 }}", "#?"],
    )
    def test_of_runs(self, saved: Path, tmp_path: Path, name: str) -> None:
        copied(saved, tmp_path, name)
        copied(saved, tmp_path, "other")
        client = Client(make_app([tmp_path]))
        [entry] = [one for one in client.get("/api/runs").data if one["name"] == name]
        page = Page(client.get("/").body)
        assert name in page.text
        assert entry["url"] in [value for _, value in page.attributes]
        assert "script" not in page.names
        own = client.get(entry["url"])
        assert own.status == 200
        shown = Page(own.body)
        assert any(name in text for _, text in shown.texts)
        other = Page(client.get("/r/other/").body)
        assert shown.names.count("script") == other.names.count("script")
        assert client.get(f"{entry['url']}api/run").data["name"] == name
        saved_as = client.get(f"{entry['url']}export/csv").headers["content-disposition"]
        assert re.fullmatch(r"attachment; filename\*=UTF-8''[\w.%~-]+\.zip", saved_as)

    def test_of_a_run_with_bytes_that_are_no_text(self, saved: Path, tmp_path: Path) -> None:
        try:
            copied(saved, tmp_path, "b\udcff")
        except (OSError, UnicodeError):
            pytest.skip("this file system takes no such names")
        client = Client(make_app([tmp_path]))
        [entry] = client.get("/api/runs").data
        assert entry["name"] == "b\\udcff"
        assert client.get(entry["url"]).status == 200
        assert client.get(f"{entry['url']}api/state").status == 200

    def test_of_a_damaged_run_with_such_bytes(self, saved: Path, tmp_path: Path) -> None:
        try:
            for name, file in (("b\udcff", "manifest.json"), ("c\udcff", "scores.npy")):
                (copied(saved, tmp_path, name) / file).write_bytes(b"damaged")
        except (OSError, UnicodeError):
            pytest.skip("this file system takes no such names")
        copied(saved, tmp_path, "run")
        client = Client(make_app([tmp_path]))
        for entry in client.get("/api/runs").data[:2]:
            assert "damaged" in client.get(f"{entry['url']}api/run").detail
        reasons = [entry["reason"] for entry in client.get("/api/runs").data]
        assert ["damaged" in reason for reason in reasons] == [True, True, False]
        assert client.get("/").status == 200

    def test_of_runs_that_are_not_there(self, looker: RunClient) -> None:
        page = looker.get("/r/%3Cscript%3Ealert(1)%3C%2Fscript%3E/")
        assert page.status == 404
        page = looker.get("/r/%3Cscript%3Ealert(1)/")
        assert (page.status, Page(page.body).names.count("script")) == (404, 0)
        assert any("<script>alert(1)" in text for _, text in Page(page.body).texts)

    def test_of_images(self, saved: Path, tmp_path: Path) -> None:
        run: Run = open_run(saved)
        names = [f"{name}.png" for name in NAMES[: len(run.table["name"])]]
        renamed = dict(zip(run.table["name"], names, strict=True))
        table = {**run.table, "name": names}
        regions = {**run.regions, "name": [renamed[name] for name in run.regions["name"]]}
        save_run(dataclasses.replace(run, table=table, regions=regions), tmp_path / "run")
        client = RunClient(make_app([tmp_path / "run"]))
        assert client.api("run").data["names"] == names
        for format in ("folders", "coco", "book"):
            reply = client.get(f"/r/run/export/{format}")
            assert reply.status == 200, reply.body
