"""Fetches a URL in a child process, within a deadline that no server can stretch.

A thread cannot be ended: a server that sends a byte every second would hold it for ever. The child is killed. It trusts
the system's CAs, and uses no proxy, even where the environment names one. `url_policy.py` decides about headers and
redirects.
"""

from __future__ import annotations

import errno
import functools
import http.client
import logging
from collections.abc import Mapping

import msgspec
import urllib3

from actors._base.process.run_in_subprocess import SubprocessError, run_in_subprocess
from actors._pki.trust import client_context
from actors.config.pods.manifest import MAX_LIST_BYTES
from actors.config.sources.url_policy import REDIRECTS, Fetch, FetchError, answer_problem, first, redirected

FETCH_S = 10.0
"""Time for one fetch with its redirects, as in the kubelet."""
CHUNK_BYTES = 64 * 1024
USER_AGENT = "kubelet/v1.36 (linux) nodevisor"


class EmptyAnswer(FetchError):
    """An answer without content."""


def fetch(url: str, header: Mapping[str, tuple[str, ...]]) -> bytes:
    """The body of the answer. Blocks for at most FETCH_S: call it in a pool thread.

    Raises FetchError; EmptyAnswer for status 200 with an empty body.
    """
    try:
        answer = run_in_subprocess(functools.partial(_in_child, url, header), FETCH_S)
    except TimeoutError:
        raise FetchError(f"no whole answer within {FETCH_S:g} s") from None
    except (OSError, SubprocessError) as error:
        raise FetchError(f"the process that fetches it failed: {error}") from error
    body, problem = msgspec.msgpack.decode(answer, type=tuple[bytes, str])
    if problem:
        raise FetchError(problem)
    if not body:
        raise EmptyAnswer("the answer is empty; serve a PodList without items to end the pods")
    return body


def _in_child(url: str, header: Mapping[str, tuple[str, ...]]) -> bytes:
    logging.disable()  # its locks may be held by a thread that this child does not have
    try:
        return msgspec.msgpack.encode((_followed(url, header), ""))
    except FetchError as error:
        return msgspec.msgpack.encode((b"", str(error)))
    except (urllib3.exceptions.HTTPError, http.client.HTTPException, OSError) as error:
        return msgspec.msgpack.encode((b"", _reason(error)))
    except ValueError as error:  # its text may quote a header
        return msgspec.msgpack.encode((b"", f"the request or the answer is not valid HTTP ({type(error).__name__})"))


def _followed(url: str, header: Mapping[str, tuple[str, ...]]) -> bytes:
    request = first(url, header)
    while True:
        response = _open(request)
        try:
            if response.status not in REDIRECTS:
                return _body(response)
            location = response.headers.get("Location", "")
        finally:
            response.close()
        request = redirected(request, location)


def _open(request: Fetch) -> urllib3.BaseHTTPResponse:
    sent = urllib3.HTTPHeaderDict({"User-Agent": USER_AGENT, "Accept": "*/*"})
    for name in {name.lower() for name, _ in request.headers}:
        sent.discard(name)
    for name, value in request.headers:
        sent.add(name, value)
    sent["Accept-Encoding"] = "identity"
    sent["Connection"] = "close"
    pool: urllib3.HTTPConnectionPool
    if request.scheme == "https":
        pool = urllib3.HTTPSConnectionPool(request.host, request.port, ssl_context=client_context())
    else:
        pool = urllib3.HTTPConnectionPool(request.host, request.port)
    return pool.urlopen(
        "GET",
        request.target,
        headers=sent,
        timeout=urllib3.Timeout(connect=FETCH_S, read=FETCH_S),
        retries=False,
        redirect=False,
        preload_content=False,
        decode_content=False,
    )


def _body(response: urllib3.BaseHTTPResponse) -> bytes:
    header = {name.lower(): value for name, value in response.headers.items()}
    if problem := answer_problem(response.status, response.reason or "", header):
        raise FetchError(problem)
    parts, size = [], 0
    while part := response.read(CHUNK_BYTES, decode_content=False):
        parts.append(part)
        size += len(part)
        if size > MAX_LIST_BYTES:
            raise FetchError(f"the answer has more than {MAX_LIST_BYTES} bytes")
    return b"".join(parts)


def _reason(error: Exception) -> str:
    """The innermost cause: urllib3's own texts name its objects."""
    cause: BaseException = error
    while (inner := cause.__cause__ or cause.__context__) is not None:
        cause = inner
    if isinstance(cause, TimeoutError) or (isinstance(cause, OSError) and cause.errno == errno.ETIMEDOUT):
        return f"no whole answer within {FETCH_S:g} s"
    return f"{cause}"[:300] or type(cause).__name__
