"""Authentication and authorization: certificates, tokens, anonymous, webhook verdicts and their caches."""

from __future__ import annotations

import logging
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from http.client import HTTPSConnection
from pathlib import Path
from ssl import SSLCertVerificationError
from typing import Any

import pytest

from actors._base.messaging.futures import Future
from actors._base.messaging.tasks import Semaphore
from actors._kube.errors import Forbidden, ServerTrouble, Throttled
from actors._net.loop import Loop
from actors._net.tls import ClientCertificate
from actors.server.auth import reviews as reviews_module
from actors.server.auth.access import Access, bearer_token
from actors.server.auth.reviews import ReviewError, Reviews
from actors.server.base.http import Request, Response, User
from actors.server.policy import Cache, Route, Table, attributes, user_of_certificate
from proto.agent.actor import Describe
from proto.common.backoff import Backoff
from tests.harness import ActorProcess, wait_for
from tests.kube.faulty_server import FaultyServer, Reply
from tests.ports import free_port
from tests.server.site import until


@pytest.mark.parametrize(
    ("method", "path", "verb", "subresources"),
    [
        ("GET", "/pods", "get", ("pods", "proxy")),
        ("GET", "/pods/", "get", ("pods", "proxy")),
        ("GET", "/podsx", "get", ("proxy",)),
        ("GET", "/runningpods/", "get", ("pods", "proxy")),
        ("GET", "/healthz", "get", ("healthz", "proxy")),
        ("GET", "/healthz/ping", "get", ("healthz", "proxy")),
        ("GET", "/configz", "get", ("configz", "proxy")),
        ("GET", "/stats/summary", "get", ("stats",)),
        ("GET", "/metrics", "get", ("metrics",)),
        ("GET", "/metrics/cadvisor", "get", ("metrics",)),
        ("GET", "/logs/", "get", ("log",)),
        ("GET", "/logs/pods/x", "get", ("log",)),
        ("POST", "/checkpoint/a/b/c", "create", ("checkpoint",)),
        ("GET", "/statusz", "get", ("statusz",)),
        ("GET", "/flagz", "get", ("configz",)),
        ("GET", "/containerLogs/a/b/c", "get", ("proxy",)),
        ("POST", "/exec/a/b/c", "create", ("proxy",)),
        ("PUT", "/debug/flags/v", "update", ("proxy",)),
        ("PATCH", "/", "patch", ("proxy",)),
        ("DELETE", "/x", "delete", ("proxy",)),
        ("HEAD", "/pods", "", ("pods", "proxy")),
    ],
)
def test_path_has_its_authorization_attributes(
    method: str, path: str, verb: str, subresources: tuple[str, ...]
) -> None:
    assert attributes(method, path) == (verb, subresources)


def test_table_finds_route_parameters_and_allowed_methods() -> None:
    async def nothing(_: Any, __: Request) -> Response:
        return Response()

    table = Table(
        (Route("GET", "/a/{x}/{y}", nothing), Route("POST", "/a/{x}/{y}", nothing), Route("GET", "/l/{p:*}", nothing))
    )
    assert table.find("GET", "/a/1/2").params == {"x": "1", "y": "2"}
    assert table.find("HEAD", "/a/1/2").route is not None
    assert table.find("PUT", "/a/1/2").allowed == ("GET", "POST")
    assert table.find("GET", "/a/1").route is None
    assert table.find("GET", "/l/x/y/").params == {"p": "x/y"}
    assert table.find("GET", "/b").allowed == ()


def test_a_certificate_names_its_user() -> None:
    assert user_of_certificate(ClientCertificate("me", ("a", "b"), 0.0)) == User("me", ("a", "b"))
    assert user_of_certificate(ClientCertificate("", ("a",), 0.0)) is None
    assert user_of_certificate(None) is None


def test_a_cache_forgets_by_time_and_by_number() -> None:
    cache: Cache[int] = Cache(2)
    for key in "abc":
        cache.put(key, ord(key), 0.0, 10.0)
    assert [cache.get(key, 5.0) for key in "abc"] == [None, ord("b"), ord("c")]
    assert cache.get("c", 10.0) is None
    cache.put("d", 1, 0.0, 0.0)
    assert cache.get("d", 0.0) is None


class ApiServer:
    """Answers reviews from tables; counts them."""

    def __init__(self) -> None:
        self.tokens = {"good": {"username": "robot", "uid": "7", "groups": ["g"], "extra": {"k": ["v"]}}}
        self.allowed = {("robot", "get", "metrics"), ("me", "get", "proxy")}
        self.asked: list[dict[str, Any]] = []
        self.errors: list[Exception] = []
        self.gate: Future[None] | None = None

    async def create(self, path: str, obj: Any) -> dict[str, Any]:
        self.asked.append(obj["spec"])
        if self.errors:
            raise self.errors.pop(0)
        if path.endswith("tokenreviews"):
            if self.gate is not None:
                await self.gate
            user = self.tokens.get(obj["spec"]["token"])
            return {"status": {"authenticated": True, "user": user} if user else {"authenticated": False}}
        what = obj["spec"]["resourceAttributes"]
        return {"status": {"allowed": (obj["spec"]["user"], what["verb"], what["subresource"]) in self.allowed}}


class Fixed:
    """A client whose API server has one answer."""

    def __init__(self, answer: dict[str, Any]) -> None:
        self._answer = answer

    async def create(self, path: str, obj: Any) -> dict[str, Any]:  # noqa: ARG002 - the same for each
        return self._answer


class Narrow:
    """A client with four threads, as the server's is."""

    def __init__(self, api: ApiServer) -> None:
        self._api, self._threads = api, Semaphore(4)

    async def create(self, path: str, obj: Any) -> dict[str, Any]:
        async with self._threads:
            return await self._api.create(path, obj)


@pytest.fixture
def loop() -> Iterator[Loop]:
    made = Loop()
    crashes: list[BaseException] = []
    made.start(crashes.append)
    thread = next(one for one in threading.enumerate() if one.name == "server")
    yield made
    made.stop()
    thread.join(10)
    assert not crashes


def run(loop: Loop, coroutine: Any) -> Any:
    done: Future[Any] = Future()

    async def wrapped() -> None:
        try:
            done.set(await coroutine)
        except Exception as error:
            done.set_error(error)

    loop.call(lambda: loop.spawn(wrapped()))
    return done.result(20)


def made(loop: Loop, api: ApiServer, ttl_s: float = 60.0) -> Reviews:
    return Reviews(loop, lambda: api, "node", ttl_s, ttl_s, ttl_s)


CERTIFICATE = ClientCertificate("me", ("o",), 0.0)
STRANGE = SSLCertVerificationError("the client's certificate cannot be verified")


def shown(certificate: Any) -> Callable[[], Any]:
    """As `Stream.certificate`."""

    def show() -> Any:
        if isinstance(certificate, Exception):
            raise certificate
        return certificate

    return show


@pytest.mark.parametrize(
    ("certificate", "header", "path", "anonymous", "status"),
    [
        (None, "", "/metrics", False, 401),
        (None, "Bearer bad", "/metrics", False, 401),
        (None, "Bearer bad", "/metrics", True, 401),
        (None, "Basic eDp5", "/metrics", False, 401),
        (None, "Bearer ", "/metrics", False, 401),
        (None, "", "/metrics", True, 403),
        (None, "Bearer good", "/metrics", False, 0),
        (None, "bearer good", "/metrics/cadvisor", False, 0),
        (None, "Bearer good", "/pods", False, 403),
        (CERTIFICATE, "", "/pods", False, 0),
        (CERTIFICATE, "", "/metrics", False, 403),
        (CERTIFICATE, "Bearer good", "/metrics", False, 403),
        (STRANGE, "", "/metrics", False, 401),
        (STRANGE, "", "/metrics", True, 401),
        (STRANGE, "Bearer bad", "/metrics", True, 401),
        (STRANGE, "Bearer good", "/metrics", False, 0),
        (STRANGE, "Bearer good", "/pods", False, 403),
    ],
)
def test_access_by_certificate_token_and_anonymous(
    loop: Loop, certificate: Any, header: str, path: str, anonymous: bool, status: int
) -> None:
    access = Access(made(loop, ApiServer()), tokens=True, anonymous=anonymous, webhook=True)
    request = Request("GET", path, {}, {"authorization": header} if header else {})
    found = run(loop, access.check(request, shown(certificate)))
    assert (found.status if isinstance(found, Response) else 0) == status


@pytest.mark.parametrize(
    ("upgrade", "protocols", "token"),
    [
        ("websocket", "base64url.bearer.authorization.k8s.io.Z29vZA, v4.channel.k8s.io", "good"),
        ("websocket", "v4.channel.k8s.io,base64url.bearer.authorization.k8s.io.Z29vZD8", "good?"),
        ("websocket", "base64url.bearer.authorization.k8s.io.Z29vZA", ""),
        (
            "websocket",
            "base64url.bearer.authorization.k8s.io.Z29vZA, base64url.bearer.authorization.k8s.io.YmFk, x",
            "",
        ),
        ("websocket", "base64url.bearer.authorization.k8s.io.Z29v!, x", ""),
        ("websocket", "base64url.bearer.authorization.k8s.io.gICA, x", ""),
        ("SPDY/3.1", "base64url.bearer.authorization.k8s.io.Z29vZA, x", ""),
    ],
)
def test_token_among_websocket_subprotocols(upgrade: str, protocols: str, token: str) -> None:
    headers = {"connection": "Upgrade", "upgrade": upgrade, "sec-websocket-protocol": protocols}
    assert bearer_token(Request("GET", "/exec", {}, headers)) == token


def test_refusal_names_user_verb_and_subresource(loop: Loop) -> None:
    access = Access(made(loop, ApiServer()), tokens=True, anonymous=True, webhook=True)
    refused = run(loop, access.check(Request("GET", "/pods", {}, {}), shown(None)))
    assert refused.body == (
        b"Forbidden (user=system:anonymous, verb=get, resource=nodes, subresource(s)=[pods proxy])\n"
    )


def test_without_webhook_every_authenticated_user_is_allowed(loop: Loop) -> None:
    access = Access(None, tokens=True, anonymous=False, webhook=False)
    assert run(loop, access.check(Request("GET", "/x", {}, {}), shown(CERTIFICATE))).name == "me"
    assert (
        run(loop, access.check(Request("GET", "/x", {}, {"authorization": "Bearer good"}), shown(None))).status == 401
    )


def test_without_an_api_server_a_webhook_allows_nothing(loop: Loop) -> None:
    access = Access(None, tokens=True, anonymous=False, webhook=True)
    assert run(loop, access.check(Request("GET", "/x", {}, {}), shown(CERTIFICATE))).status == 403


def test_access_review_has_all_attributes_of_the_tokens_user(loop: Loop) -> None:
    api = ApiServer()
    access = Access(made(loop, api), tokens=True, anonymous=False, webhook=True)
    user = run(loop, access.check(Request("GET", "/metrics", {}, {"authorization": "Bearer good"}), shown(None)))
    assert user == User("robot", ("g", "system:authenticated"), "7", {"k": ("v",)})
    assert api.asked[1] == {
        "user": "robot",
        "groups": ["g", "system:authenticated"],
        "uid": "7",
        "extra": {"k": ["v"]},
        "resourceAttributes": {
            "verb": "get", "version": "v1", "resource": "nodes", "subresource": "metrics", "name": "node",
        },
    }  # fmt: skip


def test_review_answers_are_cached_for_their_ttl(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(reviews_module, "time", type("Clock", (), {"monotonic": staticmethod(lambda: now[0])}))
    api = ApiServer()
    asking = Reviews(loop, lambda: api, "node", 120.0, 300.0, 30.0)
    user = User("robot", ("g",))

    def ask() -> int:
        run(loop, asking.user_of_token("good"))
        run(loop, asking.user_of_token("bad"))
        run(loop, asking.allowed(user, "get", "metrics"))
        run(loop, asking.allowed(user, "get", "proxy"))
        return len(api.asked)

    assert [ask(), ask()] == [4, 4]
    now[0] += 31
    assert ask() == 5, "the no is forgotten"
    now[0] += 100
    assert ask() == 8, "and the tokens, and the no again"
    now[0] += 200
    assert ask() == 12


def test_token_that_the_api_server_could_not_check_is_asked_again(loop: Loop, caplog: pytest.LogCaptureFixture) -> None:
    """Its authenticator may be well again with the next request."""
    said = f"keys\ncannot be fetched for {'good' * 9}{'.' * 490}{'good' * 9}"
    answer: dict[str, Any] = {"status": {"authenticated": False, "error": said}}
    access = Access(
        Reviews(loop, lambda: Fixed(answer), "node", 60.0, 60.0, 60.0), tokens=True, anonymous=True, webhook=False
    )
    assert run(loop, access.check(with_token("good" * 9), shown(None))).status == 401
    assert "cannot authenticate a token: keys" in caplog.text
    assert "good" not in caplog.text
    answer["status"] = {"authenticated": True, "user": {"username": "robot"}, "error": "of another authenticator"}
    assert run(loop, access.check(with_token("good" * 9), shown(None))).name == "robot"


def test_review_that_the_throttle_would_hold_for_too_long_is_refused(loop: Loop) -> None:
    api = ApiServer()
    access = Access(made(loop, api), tokens=True, anonymous=False, webhook=True)
    api.errors = [Throttled("it would wait"), Throttled("it would wait")]
    refused = run(loop, access.check(with_token("good"), shown(None)))
    assert (refused.status, refused.headers) == (429, {"Retry-After": "1"})
    assert run(loop, access.check(Request("GET", "/x", {}, {}), shown(CERTIFICATE))).status == 500
    assert len(api.asked) == 2, "neither is tried again"
    assert run(loop, access.check(with_token("good"), shown(None))).name == "robot"


def test_equal_questions_at_the_same_time_are_asked_once(loop: Loop) -> None:
    api = ApiServer()
    api.gate = gate = Future()
    asking = made(loop, api)
    found: list[User | None] = []

    async def ask() -> None:
        found.append(await asking.user_of_token("good"))

    tasks: list[Any] = []
    loop.call(lambda: tasks.extend(loop.spawn(ask()) for _ in range(5)))
    until(lambda: len(tasks) == 5)
    loop.call(tasks[0].cancel)
    gate.set(None)
    until(lambda: len(found) == 4)
    assert len(api.asked) == 1


def test_server_failures_are_retried_and_refusals_are_not(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reviews_module, "RETRY", Backoff(0.001))
    api = ApiServer()
    api.errors = [ServerTrouble(500, "", "down")] * 3
    assert run(loop, made(loop, api).user_of_token("good")).name == "robot"
    api.errors = [ServerTrouble(500, "", "down")] * 9
    with pytest.raises(ReviewError):
        run(loop, made(loop, api).user_of_token("good"))
    api.errors = [Forbidden(403, "", "may not ask")]
    asked = len(api.asked)
    access = Access(made(loop, api), tokens=True, anonymous=False, webhook=True)
    refused = run(loop, access.check(Request("GET", "/x", {}, {}), shown(CERTIFICATE)))
    assert refused.status == 500
    assert refused.body.startswith(b"Authorization error (user=me, ")
    assert len(api.asked) == asked + 1


@pytest.mark.parametrize(
    "status",
    [
        "ok",
        [],
        {"authenticated": "false", "user": {"username": "system:admin", "groups": ["system:masters"]}},
        {"authenticated": 1},
        {"authenticated": False, "error": 5},
        {"authenticated": True, "user": "root"},
        {"authenticated": True, "user": {"username": 5}},
        {"authenticated": True, "user": {"username": "u", "groups": "masters"}},
        {"authenticated": True, "user": {"username": "u", "extra": {"k": "v"}}},
        {"authenticated": True, "user": {"username": "u", "extra": {"k": [5]}}},
    ],
    ids=str,
)
def test_token_review_of_another_type_authenticates_no_user(loop: Loop, status: Any) -> None:
    reviews = Reviews(loop, lambda: Fixed({"status": status}), "node", 60.0, 60.0, 60.0)
    for _ in range(2):
        with pytest.raises(ReviewError, match="no TokenReview"):
            run(loop, reviews.user_of_token("t"))
    assert reviews.asked == 2, "the answer is not cached"


@pytest.mark.parametrize(
    "status", ["ok", {"allowed": "false"}, {"allowed": {}}, {"allowed": [0]}, {"allowed": True, "denied": ""}], ids=str
)
def test_access_review_of_another_type_allows_nothing(loop: Loop, status: Any) -> None:
    reviews = Reviews(loop, lambda: Fixed({"status": status}), "node", 60.0, 60.0, 60.0)
    for _ in range(2):
        with pytest.raises(ReviewError, match="no SubjectAccessReview"):
            run(loop, reviews.allowed(User("eve"), "get", "proxy"))
    assert reviews.asked == 2, "the answer is not cached"


@pytest.mark.parametrize("answer", [{}, {"status": None}, {"status": {}}, {"status": {"allowed": None, "user": None}}])
def test_review_without_a_verdict_is_a_refusal(loop: Loop, answer: dict[str, Any]) -> None:
    reviews = Reviews(loop, lambda: Fixed(answer), "node", 60.0, 60.0, 60.0)
    assert run(loop, reviews.allowed(User("eve"), "get", "proxy")) is False
    assert run(loop, reviews.user_of_token("t")) is None


def with_token(token: str) -> Request:
    return Request("GET", "/metrics", {}, {"authorization": f"Bearer {token}"})


def test_token_over_16_kib_is_refused_without_a_review(loop: Loop) -> None:
    api = ApiServer()
    access = Access(made(loop, api), tokens=True, anonymous=True, webhook=True)
    assert run(loop, access.check(with_token("x" * (16 * 1024 + 1)), shown(None))).status == 401
    assert not api.asked
    assert run(loop, access.check(with_token("x" * 16 * 1024), shown(None))).status == 401
    assert len(api.asked) == 1


def test_token_reviews_that_wait_are_bounded(loop: Loop) -> None:
    """Their clients may be gone: a review is shared, so it goes on."""
    api = ApiServer()
    api.gate = gate = Future()
    access = Access(made(loop, api), tokens=True, anonymous=False, webhook=True)
    tasks: list[Any] = []

    def begin() -> None:
        for number in range(reviews_module.MAX_TOKEN_REVIEWS):
            tasks.append(loop.spawn(access.check(with_token(f"bogus-{number}"), shown(None))))
            tasks[-1].cancel()

    loop.call(begin)
    until(lambda: len(tasks) == reviews_module.MAX_TOKEN_REVIEWS)
    refused = run(loop, access.check(with_token("good"), shown(None)))
    assert (refused.status, refused.headers) == (429, {"Retry-After": "1"})
    assert len(api.asked) == reviews_module.MAX_TOKEN_REVIEWS
    gate.set(None)
    assert run(loop, access.check(with_token("good"), shown(None))).name == "robot"


def test_invalid_tokens_displace_no_known_user(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reviews_module, "MAX_ANSWERS", 8)
    api = ApiServer()
    access = Access(made(loop, api), tokens=True, anonymous=False, webhook=True)
    assert run(loop, access.check(with_token("good"), shown(None))).name == "robot"
    for number in range(16):
        assert run(loop, access.check(with_token(f"bogus-{number}"), shown(None))).status == 401
    asked = len(api.asked)
    assert run(loop, access.check(with_token("good"), shown(None))).name == "robot"
    assert len(api.asked) == asked, "its user is known"


def test_token_reviews_delay_no_access_review(loop: Loop) -> None:
    api = ApiServer()
    api.gate = gate = Future()
    reviews = Reviews(loop, lambda: Narrow(api), "node", 60.0, 60.0, 60.0)
    access = Access(reviews, tokens=True, anonymous=False, webhook=True)
    tasks: list[Any] = []
    loop.call(lambda: tasks.extend(loop.spawn(access.check(with_token(f"{n}"), shown(None))) for n in range(10)))
    until(lambda: len(tasks) == 10)
    assert run(loop, access.check(Request("GET", "/pods", {}, {}), shown(CERTIFICATE))).name == "me"
    gate.set(None)
    until(lambda: all(task.done() for task in tasks))


def test_clients_without_rights_cause_few_log_lines(loop: Loop, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    api = ApiServer()
    access = Access(made(loop, api), tokens=True, anonymous=True, webhook=True)
    for number in range(50):
        assert run(loop, access.check(Request("GET", "/pods", {}, {}), shown(None))).status == 403
        assert run(loop, access.check(Request("GET", "/pods", {}, {}), shown(STRANGE))).status == 401
        api.errors = [Forbidden(403, "", "may not ask")]
        assert run(loop, access.check(with_token(f"bogus-{number}"), shown(None))).status == 401
        api.errors = [Forbidden(403, "", "may not ask")] * 2
        certificate = ClientCertificate(f"user-{number}", (), 0.0)
        assert run(loop, access.check(Request("GET", "/pods", {}, {}), shown(certificate))).status == 500
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 20
    for words in ("forbidden: ", "cannot be verified", "cannot review a token", "cannot review access"):
        assert any(words in line for line in said)


def test_reviews_follow_kube_api_qps(tmp_path: Path) -> None:
    """Clients without any right cause TokenReviews. After the burst, the throttle allows no further one for hours."""
    trusting, port = ssl.create_default_context(), free_port()
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE

    def status(token: str) -> int:
        with closing(HTTPSConnection("127.0.0.1", port, timeout=60, context=trusting)) as connection:
            connection.request("GET", "/healthz", headers={"Authorization": f"Bearer {token}"})
            return connection.getresponse().status

    with (
        FaultyServer(lambda _: Reply(201, {"status": {"authenticated": False}})) as api,
        ActorProcess(
            "server", server_address="127.0.0.1", server_port=port, webhook_authentication=True,
            kubeconfig=str(api.kubeconfig(tmp_path / "kubeconfig")), cert_dir=str(tmp_path / "pki"),
            kube_api_qps=0.0001, kube_api_burst=2,
        ) as process,
    ):  # fmt: skip
        wait_for(lambda: process.ask(Describe()).state["ports"] == [port], 30, "the port")
        assert [status(f"bogus-{number}") for number in range(4)] == [401, 401, 429, 429]
        assert len(api.of("POST", reviews_module.TOKEN_REVIEWS)) == 2
