"""Pods whose containers mount parts of volumes (subPath, subPathExpr), or one object several times: cases as those of
cases.py."""

from __future__ import annotations

import re
from typing import Any

from tests.agent.agent import container, pod
from tests.agent.table import Case, Seen, once, waits
from tests.agent.volumes.cases import GROUP, refused, says


def sees_parts(seen: Seen) -> None:
    assert seen.log() == "got=x\nown=part\nlogs\npart\nsub\n", seen.log()


def _parts() -> dict[str, Any]:
    """Parts of a volume: a file, a directory that is made, one by a variable."""
    volumes = [{"name": "v", "emptyDir": {}}]
    whole = {"name": "v", "mountPath": "/whole"}
    mounts = [
        whole,
        {"name": "v", "mountPath": "/v", "subPath": "sub/file"},
        {"name": "v", "mountPath": "/own", "subPathExpr": "$(POD_NAME)"},
        {"name": "v", "mountPath": "/made", "subPath": "logs/deep"},
    ]
    env = [{"name": "POD_NAME", "value": "part"}]
    first = container(
        "i", "mkdir /whole/sub /whole/part; echo x > /whole/sub/file; echo part > /whole/part/f", volumeMounts=[whole]
    )
    script = "echo got=$(cat /v); echo own=$(cat /own/f); touch /made/f; ls /whole; test -f /whole/logs/deep/f"
    manifest = pod("", container("c", script, env=env, volumeMounts=mounts), restartPolicy="Never", volumes=volumes)
    manifest["spec"]["initContainers"] = [first]
    return manifest


def second_life(seen: Seen) -> None:
    assert (seen.container()["restartCount"], seen.log(life=1)) == (1, "2\n")


def _escape(target: str) -> dict[str, Any]:
    """An init container puts a link into the volume, and the container mounts what it leads to."""
    volumes = [{"name": "v", "emptyDir": {}}]
    first = container("i", f"ln -s {target} /v/link", volumeMounts=[{"name": "v", "mountPath": "/v"}])
    main = container("c", "ls /v", volumeMounts=[{"name": "v", "mountPath": "/v", "subPath": "link"}])
    return {**pod("", main, volumes=volumes, initContainers=[first])}


def _one_object_twice() -> dict[str, Any]:
    """A ConfigMap in two volumes, with modes of their own, and a key of it in the place of a file of the image."""
    volumes = [
        {"name": "v", "configMap": {"name": "c"}},
        {"name": "w", "configMap": {"name": "c", "defaultMode": 0o440, "items": [{"key": "b", "path": "d/b"}]}},
    ]
    mounts = [
        {"name": "v", "mountPath": "/v"},
        {"name": "w", "mountPath": "/w"},
        {"name": "v", "mountPath": "/etc/passwd", "subPath": "a"},
        {"name": "w", "mountPath": "/v2/deep/b", "subPath": "d/b"},
    ]
    script = "echo $(stat -Lc %a /v/b /w/d/b) $(cat /v/b /w/d/b /etc/passwd /v2/deep/b)"
    return once(script, spec={"volumes": volumes}, volumeMounts=mounts)


def _part_that_is_made(**volume: Any) -> dict[str, Any]:
    """A directory created for a subPath has the volume's mode, and is not writable when read-only."""
    mounts = [
        {"name": "v", "mountPath": "/v"},
        {"name": "v", "mountPath": "/made", "subPath": "made/deep"},
        {"name": "v", "mountPath": "/read", "subPath": "made", "readOnly": True},
    ]
    script = (
        "echo $(stat -c %a,%g /v /made /v/made); echo x > /made/f && cat /read/deep/f; touch /read/new || echo refused"
    )
    return once(
        f"exec 2>/dev/null; {script}", spec={"volumes": [{"name": "v", **volume}], **GROUP}, volumeMounts=mounts
    )


def _again(kind: str) -> dict[str, Any]:
    """A container that fails once and has its part of the volume again."""
    write = "echo x >> /part/f" if kind == "d" else "echo x >> /part"
    read = "/part/f" if kind == "d" else "/part"
    script = f"{write}; n=$(wc -l < {read}); [ $n -gt 1 ] && echo $n || exit 1"
    first = container(
        "i", "mkdir /v/d; touch /v/f", volumeMounts=[{"name": "v", "mountPath": "/v"}]
    )  # fmt: skip
    part = container("c", script, volumeMounts=[{"name": "v", "mountPath": "/part", "subPath": kind}])
    volumes = [{"name": "v", "emptyDir": {}}]
    return pod("", part, volumes=volumes, initContainers=[first], restartPolicy="OnFailure")


def _exchanged() -> dict[str, Any]:
    """A container whose part of the volume has become a link out of it by the time it starts again."""
    whole, part = {"name": "v", "mountPath": "/v"}, {"name": "v", "mountPath": "/part", "subPath": "part"}
    script = "rm -r /v/part && ln -s /etc /v/part; exit 1"
    volumes = [{"name": "v", "emptyDir": {}}]
    return pod("", container("c", script, volumeMounts=[whole, part]), volumes=volumes, restartPolicy="OnFailure")


def _expression(value: str | None, expression: str = "$(PART)") -> dict[str, Any]:
    env = [{"name": "PART", "value": value}] if value is not None else []
    mounts = [{"name": "v", "mountPath": "/v", "subPathExpr": expression}]
    return once("true", spec={"volumes": [{"name": "v", "emptyDir": {}}]}, volumeMounts=mounts, env=env)


def _many() -> dict[str, Any]:
    """Repeat upstream's test of fifty ConfigMap volumes in one pod."""
    volumes = [{"name": f"v{number}", "configMap": {"name": "c"}} for number in range(50)]
    mounts = [{"name": one["name"], "mountPath": f"/v/{one['name']}"} for one in volumes]
    return once("cat /v/*/a | tr -d '\\n' | wc -c", spec={"volumes": volumes}, volumeMounts=mounts)


NOT_PREPARED = 'failed to prepare subPath for volumeMount "v" of container "c"'
PARTS = {"part": Case(_parts(), sees_parts)}
PARTS["twice"] = Case(_one_object_twice(), lambda seen: says(seen, "644 440 2212\n"))
for medium, mode in (("", "2777"), ("Memory", "3777")):
    PARTS[f"made{medium.lower()}"] = Case(
        _part_that_is_made(emptyDir={"medium": medium}),
        lambda seen, mode=mode: says(seen, f"{mode},4321 {mode},4321 {mode},4321\nx\nrefused\n"),
    )
for kind in ("d", "f"):
    PARTS[f"again-{kind}"] = Case(_again(kind), second_life)
PARTS["exchanged"] = Case(_exchanged(), refused(NOT_PREPARED), waits("CreateContainerConfigError"))
PARTS["many"] = Case(_many(), lambda seen: says(seen, "50\n"))
for name, manifest, message in (
    ("up", _expression(".."), "unable to provision SubPath `..`: must not contain '..'"),
    ("absolute", _expression("/tmp"), "error SubPath `/tmp` must not be an absolute path"),
    ("missing", _expression(None), "missing value for PART"),
    ("empty", _expression(""), "missing value for PART"),
):
    PARTS[f"expression-{name}"] = Case(manifest, refused(message), waits("CreateContainerConfigError"))
PARTS["escape"] = Case(_escape("/etc"), refused(NOT_PREPARED), waits("CreateContainerConfigError"))
PARTS["escape-up"] = Case(_escape("../../../.."), refused(NOT_PREPARED), waits("CreateContainerConfigError"))


READERS = [f"r{number}" for number in range(6)]


def _race() -> dict[str, Any]:
    """A sidecar exchanges, as fast as it can, a directory for links out of the volume, while containers mount it."""
    whole = [{"name": "v", "mountPath": "/v"}]
    script = (
        "mkdir /v/real /v/link; touch /v/real/in /v/started; cd /v; while true; do "
        "for to in /etc ../../../../../../../../etc real; do ln -s $to next; rm -rf link; mv next link; done; "
        "rm link; mkdir link; touch link/in; done"
    )
    ready = {"exec": {"command": ["test", "-e", "/v/started"]}, "periodSeconds": 1}
    swaps = container("swaps", script, volumeMounts=whole, restartPolicy="Always", startupProbe=ready)
    part = [{"name": "v", "mountPath": "/part", "subPath": "link"}]
    look = "[ -e /part/passwd ] && echo out; ls -A /part; sleep 1"
    mains = [container(name, look, volumeMounts=part) for name in READERS]
    volumes = [{"name": "v", "emptyDir": {}}]
    return pod("", *mains, volumes=volumes, initContainers=[swaps], restartPolicy="Never")


def tried(seen: Seen) -> bool:
    """Each has had its part mounted, or been refused it."""
    return all(
        seen.container(name).get("state", {}).get("terminated") or seen.reason(name) == "CreateContainerConfigError"
        for name in READERS
    )


def stays_inside(seen: Seen) -> None:
    for name in READERS:
        lines = seen.lines(name)
        # crun and runc say in the log that a part went before it was mounted.
        gone = len(lines) == 1 and re.search(r"(^|: )mount /.*: no such file or directory$", lines[0], re.IGNORECASE)
        assert gone or lines in ([], ["in"]), lines
        if not seen.container(name)["state"].get("terminated"):
            assert seen.message(name) == f'failed to prepare subPath for volumeMount "v" of container "{name}"'


PARTS["race"] = Case(_race(), stays_inside, tried)
