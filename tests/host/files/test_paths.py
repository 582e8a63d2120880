"""A UID or name that leads out of its directory is refused."""

from collections.abc import Callable

import pytest

from actors._host.files import paths

OUT = ["../..", "a/b", "/", "/etc", "a\0b"]
PATHS: dict[str, Callable[[str], str]] = {
    "pod": lambda text: paths.pod_dir("/r", text),
    "volumes": lambda text: paths.pod_volumes_dir("/r", text),
    "devices": lambda text: paths.pod_devices_dir("/r", text),
    "device": lambda text: paths.pod_device("/r", text, "p", "v"),
    "volume": lambda text: paths.volume_dir("/r", text, "p", "v"),
    "plugin volume": lambda text: paths.plugin_volume_dir("/r", text, "p", "v"),
    "sub paths": lambda text: paths.subpaths_dir("/r", text),
    "container of uid": lambda text: paths.container_dir("/r", text, "c"),
    "container": lambda text: paths.container_dir("/r", "u", text),
    "hosts": lambda text: paths.etc_hosts_path("/r", text),
    "log directory of uid": lambda text: paths.pod_log_dir("/l", "ns", "n", text),
    "log directory of name": lambda text: paths.pod_log_dir("/l", "ns", text, "u"),
    "log directory of namespace": lambda text: paths.pod_log_dir("/l", text, "n", "u"),
    "log": lambda text: paths.container_log_path(text, 0),
}


@pytest.mark.parametrize("name", PATHS)
def test_uid_or_name_that_leads_out_of_its_directory_is_refused(name: str) -> None:
    for text in OUT if name.startswith("log directory") else ["", ".", "..", *OUT]:
        with pytest.raises(ValueError, match="in a path"):
            PATHS[name](text)
    for text in ("0c6ab2d0-4b3a-4c5e-8f2b-9d1e7a3f5c11", "a.b_c-D", "lost+found", "a" * 253):
        assert text in PATHS[name](text)
