"""An actor that sends HTTP hooks when it is asked to, as pod_workers does. For the tests of hostile answers."""

from actors._base import Actor, handles
from actors._net.probing.target import Url
from actors.pod_workers.shared.http_hooks import HttpHooks
from tests.probe import hooking_messages as m


class Hooking(Actor):
    name = "hooking"

    async def rebuild(self) -> None:
        self.hooks = HttpHooks(self)

    @handles(m.Hook)
    async def hook(self, message: m.Hook) -> m.Came:
        url = Url(message.scheme, message.host, message.port, message.path, f"{message.host}:{message.port}")
        outcome = await self.hooks.get(url, (), message.timeout_s)
        return m.Came(kind=outcome.kind, output=outcome.output)


ACTOR = Hooking
