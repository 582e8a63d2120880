"""`supervisor config validate` on the configurations of four kinds of real nodes says what will not happen, no more.

`nodes/KIND` has the files and the flags of a kubelet: kubeadm's and k3s' of 1.36, those that nodeadm writes on EKS'
AL2023, and those of GKE's nodes, as far as they are public.
"""

import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from supervisor.cli import group

NODES = Path(__file__).parents[1] / "nodes"


@pytest.mark.parametrize("kind", ["kubeadm", "k3s", "eks", "gke"])
def test_validate_says_what_will_not_happen_on_a_node(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = shutil.copytree(NODES / kind, tmp_path / kind)
    (node / "bin").mkdir()
    for plugin in ("ecr-credential-provider", "auth-provider-gcp"):
        (node / "bin" / plugin).touch(mode=0o755)
    monkeypatch.chdir(node)
    done = CliRunner().invoke(group, ["config", "validate", *(NODES / kind / "flags").read_text().split()])
    assert done.exit_code == 0
    assert done.output == (NODES / kind / "expected").read_text() + "configuration: valid\n"
