"""Decisions about image pulls: recently seen images, back-off, the pull rate, and the kubelet's messages.

Pure; times are monotonic seconds. Source: EnsureImageExists of pkg/kubelet/images and flowcontrol.Backoff of
k8s.io/client-go.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import InitVar, dataclass, field
from typing import Generic, TypeVar

from proto.common.backoff import Backoff

K = TypeVar("K", bound=Hashable)

PRESENT_FOR_S = 2.0
"""Time for which a found image counts as present without asking the runtime again.

An image can be deleted between the answer and CreateContainer, by hand or by garbage collection. The kubelet has that
window, too; two seconds make it longer. The result is the same: CreateContainer fails, and the pod's later retry asks
the runtime and pulls. In return a hundred pods of one image that start together cost a handful of ImageStatus calls. An
absent image is never remembered.
"""

_OF_RUNTIMES = ("io.containerd.", "io.kubernetes.cri-o.")
"""Beginnings of the annotations by which runtimes choose, such as containerd's io.containerd.cri.runtime-handler.

The pods of a workload have these in common. Others may differ, such as the addresses that a network plugin notes.
"""

REGISTRY_UNAVAILABLE = "RegistryUnavailable"
SIGNATURE_VALIDATION_FAILED = "SignatureValidationFailed"
PULL_QPS_EXCEEDED = "pull QPS exceeded"
NOT_UTF8 = "cannot use credentials for the registry: user or password is not UTF-8; correct the pull secret's auth"


@dataclass(frozen=True, slots=True)
class Present:
    """An image on the node."""

    image_ref: str
    user: str
    """UID or name; `0` for an image that sets neither, as in the kubelet."""
    size_bytes: int = 0


@dataclass(slots=True)
class Presence(Generic[K]):
    """Images found a moment ago, by key; see PRESENT_FOR_S."""

    _found: dict[K, tuple[Present, float]] = field(default_factory=dict)

    def get(self, key: K, now: float) -> Present | None:
        """The image, if it was seen at most PRESENT_FOR_S ago."""
        entry = self._found.get(key)
        return entry[0] if entry is not None and now < entry[1] else None

    def put(self, key: K, image: Present, now: float) -> None:
        """Remember an image, and drop expired ones."""
        self._found = {known: entry for known, entry in self._found.items() if now < entry[1]}
        self._found[key] = (image, now + PRESENT_FOR_S)

    def __len__(self) -> int:
        return len(self._found)


@dataclass(slots=True)
class _PullDelay:
    delay_s: float
    last: float
    message: str
    tried: object


@dataclass(slots=True)
class PullBackOff:
    """Delays between pulls of one pod's image, by key, doubling from `initial_s` to `cap_s`.

    As in flowcontrol.Backoff a success does not reset a delay, only twice the cap without a failure does. A delay holds
    for the tried credentials only: with others the next pull starts at once.
    """

    initial_s: InitVar[float]
    cap_s: InitVar[float]
    _delays: Backoff = field(init=False)
    _entries: dict[str, _PullDelay] = field(default_factory=dict)

    def __post_init__(self, initial_s: float, cap_s: float) -> None:
        self._delays = Backoff(min(initial_s, cap_s), cap_s=cap_s, reset_after_s=2 * cap_s)

    def refusal(self, key: str, now: float, tried: object = ()) -> str | None:
        """Reason and message of the failed pull while the key is in back-off; else None."""
        entry = self._entries.get(key)
        if entry is None or self._expired(entry, now) or now - entry.last >= entry.delay_s or entry.tried != tried:
            return None
        return entry.message

    def failed(self, key: str, message: str, now: float, tried: object = ()) -> None:
        """Start the next delay after a failed pull, and drop expired keys: of pods that are gone."""
        self.forget_old(now)
        entry = self._entries.get(key)
        if entry is None or entry.tried != tried:
            self._entries[key] = _PullDelay(self._delays.initial_s, now, message, tried)
        else:
            entry.delay_s = self._delays.grown_s(entry.delay_s)
            entry.last, entry.message = now, message

    def forget_old(self, now: float) -> None:
        """Drop expired keys."""
        self._entries = {key: entry for key, entry in self._entries.items() if not self._expired(entry, now)}

    def remaining(self, now: float) -> dict[str, float]:
        """Seconds left for each key in back-off."""
        return {
            key: round(entry.delay_s - (now - entry.last), 1)
            for key, entry in self._entries.items()
            if now - entry.last < entry.delay_s
        }

    def _expired(self, entry: _PullDelay, now: float) -> bool:
        return self._delays.is_reset(entry.last, now)


def choosing(annotations: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """A pod's annotations by which a runtime may choose how it pulls an image, by name."""
    return tuple(sorted((name, value) for name, value in annotations.items() if name.startswith(_OF_RUNTIMES)))


def back_off_key(pod_uid: str, image: str) -> str:
    """The kubelet's key: a pod's containers with the same image share one back-off."""
    return f"{pod_uid}_{image}"


def image_user(uid: int | None, username: str) -> str:
    """The image's user from ImageStatus; root by default."""
    return str(uid) if uid is not None else username or "0"


def pull_error_text(code: str, details: str) -> str:
    """Text of a failed PullImage from its gRPC code and details. The kubelet omits the code Unknown for pulls."""
    return details if code == "Unknown" else f"rpc error: code = {code} desc = {details}"


def joined(texts: Iterable[str]) -> str:
    """The error of a pull that failed with all credentials; `texts`: an error for each."""
    different = list(dict.fromkeys(texts))
    return different[0] if len(different) == 1 else f"[{', '.join(different)}]"


def pull_error(image: str, text: str) -> tuple[str, str]:
    """(reason, message) of a failed pull; `image`: the container's image name."""
    for reason, cause in (
        (REGISTRY_UNAVAILABLE, "the registry is unavailable"),
        (SIGNATURE_VALIDATION_FAILED, "the signature validation failed"),
    ):
        if text.startswith(reason):
            return reason, f"image pull failed for {image} because {cause}{text.removeprefix(reason)}"
    return "ErrImagePull", text


def missing_secrets(names: Iterable[str]) -> tuple[str, str]:
    """(reason, message) of the event for missing pull Secrets."""
    listed = ", ".join(names)
    message = f"Unable to retrieve some image pull secrets ({listed}); attempting to pull the image may not succeed."
    return "FailedToRetrieveImagePullSecret", message


def present_message(image: str, *, verified: bool) -> str:
    """The Pulled event's message for a present image."""
    said = " and can be accessed by the pod" if verified else ""
    return f'Container image "{image}" already present on machine{said}'


def never_message(image: str) -> str:
    """ErrImageNeverPull's message."""
    return f'Container image "{image}" is not present with pull policy of Never'


def not_recorded(image: str, error: object) -> str:
    """The message of a pull that did not start since its intent could not be written."""
    return f'Failed to record image pull intent for container image "{image}": {error}'


def without_ref(image: str) -> str:
    """The error of a pull for which the runtime names no image."""
    return f'imageRef of image "{image}" is not set'


def without_size(image: str) -> str:
    """The error of an inspection for which the runtime does not say which image it is, or that it has content."""
    return f'Id or size of image "{image}" is not set'


def inspect_message(image: str, error: str) -> str:
    """ImageInspectError's message. Names the image, which the kubelet's own leaves empty since 1.33 by mistake."""
    return f'Failed to inspect image "{image}": {error}'


def back_off_message(image: str, previous: str) -> str:
    """ImagePullBackOff's message, with the failed pull's."""
    return f'Back-off pulling image "{image}": {previous}' if previous else f'Back-off pulling image "{image}"'


def pulled_message(image: str, pull_s: float, total_s: float, size_bytes: int) -> str:
    """The Pulled event's message after a pull; `total_s` includes the time in the queue."""
    return (
        f'Successfully pulled image "{image}" in {go_duration(pull_s)} ({go_duration(total_s)} including waiting). '
        f"Image size: {size_bytes} bytes."
    )


_MB, _GB = 1 << 20, 1 << 30
_SIZES = (
    (10 * _MB, "0-10MB"),
    (100 * _MB, "10MB-100MB"),
    (500 * _MB, "100MB-500MB"),
    (_GB, "500MB-1GB"),
    (5 * _GB, "1GB-5GB"),
    (10 * _GB, "5GB-10GB"),
    (20 * _GB, "10GB-20GB"),
    (30 * _GB, "20GB-30GB"),
    (40 * _GB, "30GB-40GB"),
    (60 * _GB, "40GB-60GB"),
    (100 * _GB, "60GB-100GB"),
)


def size_class(size_bytes: int) -> str:
    """The size label of the kubelet's image_pull_duration_seconds. A size of 0 is not known."""
    if size_bytes == 0:
        return "N/A"
    return next((label for bound, label in _SIZES if size_bytes <= bound), "GT100GB")


def go_duration(seconds: float) -> str:
    """A duration as Go prints it, cut to milliseconds: 308ms, 1.5s, 2m3.25s, 1h0m0s."""
    milliseconds = int(seconds * 1000)
    if milliseconds < 1000:
        return f"{milliseconds}ms" if milliseconds else "0s"
    minutes, rest = divmod(milliseconds, 60_000)
    hours, minutes = divmod(minutes, 60)
    text = f"{rest / 1000:.3f}".rstrip("0").rstrip(".") + "s"
    if hours:
        return f"{hours}h{minutes}m{text}"
    return f"{minutes}m{text}" if minutes else text
