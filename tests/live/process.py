"""Runs `supervisor start` with the tests' children and a shorter trial.

`python -m tests.live.process JSON FLAG...`, where JSON has the times of a trial, the actors and the child entry.
"""

from __future__ import annotations

import json
import sys

import msgspec

from proto.common import logs
from supervisor.cli.agent import start
from supervisor.cli.errors import CommandError
from supervisor.config.flags.parser import parse
from supervisor.config.reload import boot, policy, watch
from supervisor.core import agent, daemon
from supervisor.supervision import specs


def main(how: dict[str, object], line: list[str]) -> int:
    policy.STABLE_S, policy.ANSWER_S = how["stable_s"], how["answer_s"]  # type: ignore[assignment]
    policy.READY_WITHIN_S = how["ready_within_s"]  # type: ignore[assignment]
    watch.RESCAN_S = how["rescan_s"]  # type: ignore[assignment]
    given = parse(line)
    try:
        effective, settings, reload = boot.choose(given, start.LOADER)
    except CommandError as error:
        sys.stderr.write(f"{error.format_message()}\n")
        return 1
    logs.setup("supervisor", settings.verbosity)
    plan = msgspec.structs.replace(
        start.plan_of(settings, given), configuration=start.encoded(effective, given), reload=reload, settings=settings
    )
    return daemon.run(
        settings,
        specs.select(plan.specs, how["actors"]),  # type: ignore[arg-type]
        on_event=agent._Files(plan),
        child_entry=str(how["entry"]),
        reload=agent.reload_controller(plan),
    )


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1]), sys.argv[2:]))
