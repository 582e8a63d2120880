"""Resolves host names for probes and hooks; a slow name does not delay others.

getaddrinfo blocks, because it uses the node's resolvers: hosts file, DNS, other sources of nsswitch.conf. So each
lookup has its own thread, which concurrent lookups of the same name share.
"""

from __future__ import annotations

import errno
import os
import socket
import threading

from actors._base import Future

MAX_AT_ONCE = 64
"""Concurrent lookups of different names, to bound the threads."""
MAX_ADDRESSES = 8
"""Of one name. The owner of a name may give it thousands, which would be tried one after the other."""


class Names:
    """Resolves names. Usable from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._asked: dict[str, list[Future[tuple[str, ...]]]] = {}

    def addresses(self, host: str) -> Future[tuple[str, ...]]:
        """The addresses that the node's resolver returns for `host`, at least one, best first, at most
        MAX_ADDRESSES.

        Fails with OSError; EAGAIN says that this process has no room for the lookup. The caller sets a deadline.
        """
        future: Future[tuple[str, ...]] = Future()
        with self._lock:
            waiting = self._asked.get(host)
            if waiting is not None:
                waiting.append(future)
                return future
            if len(self._asked) < MAX_AT_ONCE:
                self._asked[host] = [future]
                try:
                    threading.Thread(
                        target=self._look_up, args=(host,), name=f"lookup {host}"[:60], daemon=True
                    ).start()
                except RuntimeError as error:  # the machine's or this process's limit of threads
                    del self._asked[host]
                    problem = str(error)
                else:
                    return future
            else:
                problem = f"{MAX_AT_ONCE} other names are being looked up"
        future.set_error(OSError(errno.EAGAIN, problem))
        return future

    def _look_up(self, host: str) -> None:
        found: tuple[str, ...] = ()
        error = None
        try:
            listed = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
            found = tuple(dict.fromkeys(str(one[4][0]) for one in listed))[:MAX_ADDRESSES]
        except (OSError, UnicodeError) as failure:  # UnicodeError: labels that are too long or empty
            error = failure if isinstance(failure, OSError) else OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        with self._lock:
            waiting = self._asked.pop(host)
        for future in waiting:
            if error is not None:
                future.set_error(error)
            else:
                future.set(found)
