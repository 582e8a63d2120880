"""The sample configuration and the systemd unit in etc/."""

from __future__ import annotations

import configparser
import re
import shlex
import tomllib
from pathlib import Path

from supervisor.config.configuration import assemble
from supervisor.config.flags.parser import parse
from supervisor.config.kubeletconfig import defaults, fields
from supervisor.config.kubeletconfig.typed.schema import leaves

ROOT = Path(__file__).parents[3]
SAMPLE = ROOT / "etc/kubelet.yaml"
EXAMPLE = re.compile(r"^( *)#(?=[a-z])", re.MULTILINE)


def test_the_sample_configuration_shows_the_defaults() -> None:
    effective = assemble({}, str(SAMPLE))
    assert defaults.changed(effective.config) == ["staticPodPath", "evictionHard"]
    assert effective.config.eviction_hard == assemble({}).config.eviction_hard
    assert effective.notes == ()


def test_the_examples_in_the_sample_configuration_are_valid(tmp_path: Path) -> None:
    text, examples = EXAMPLE.subn(r"\1", SAMPLE.read_text(encoding="utf-8"))
    assert examples == 5
    sample = tmp_path / "kubelet.yaml"
    sample.write_text(text.replace("serializeImagePulls: true", "serializeImagePulls: false"))
    effective = assemble({}, str(sample))
    assert effective.config.cluster_dns == ("10.96.0.10",)
    assert effective.notes == ()


def test_every_field_of_the_sample_configuration_has_an_effect() -> None:
    written = {re.sub(r"\[.*", "", field) for field in assemble({}, str(SAMPLE)).sources} & set(leaves())
    assert len(written) > 20
    assert {field for field in written if fields.verdicts()[field].kind != "effective"} == set()


def unit() -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None, delimiters="=", comment_prefixes="#")
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read_string((ROOT / "etc/nodevisor.service").read_text(encoding="utf-8"))
    return parser


def test_unit_starts_the_installed_command() -> None:
    command, start, *flags = shlex.split(unit()["Service"]["ExecStart"])
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["scripts"]
    assert Path(command).name in scripts
    assert f"python3 -m venv {Path(command).parents[1]}" in (ROOT / "README.md").read_text(encoding="utf-8")
    assert start == "start"
    given = parse([flag for flag in flags if not flag.startswith("$")])
    assert f"cp etc/kubelet.yaml {given.values['config']}" in (ROOT / "etc/nodevisor.service").read_text()


def test_unit_keeps_pods_and_lets_supervisor_restart_actors() -> None:
    service = unit()["Service"]
    found = {key: service[key] for key in ("Type", "NotifyAccess", "Restart", "KillMode", "OOMPolicy", "Delegate")}
    assert found == {
        "Type": "notify",
        "NotifyAccess": "main",
        "Restart": "always",
        "KillMode": "process",
        "OOMPolicy": "continue",
        "Delegate": "no",
    }
    assert int(service["WatchdogSec"]) >= 10
