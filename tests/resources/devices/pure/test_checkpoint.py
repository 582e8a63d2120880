import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.resources.devices import checkpoint
from actors.resources.devices.checkpoint import DamagedError
from actors.resources.devices.holdings import Holding

REGISTERED_ONLY = (
    b'{"Data":{"PodDeviceEntries":null,"RegisteredDevices":{"nvidia.com/gpu":'
    b'["GPU-0650a168-e770-3ea8-8ac3-8a1d419763e0"]}},"Checksum":3952659280}'
)
WITH_A_POD = (
    b'{"Data":{"PodDeviceEntries":[{"PodUID":"9a15d2b5-c152-46b9-96e0-d57032629e1f","ContainerName":"app",'
    b'"ResourceName":"nvidia.com/gpu","DeviceIDs":{"1":["GPU-9b341c59-f96b-ba85-c137-78c3652fea65",'
    b'"GPU-c1e9f249-b37b-81c2-a8d9-ba5ca0294841"]},"AllocResp":"CmsKFk5WSURJQV9WSVNJQkxFX0RFVklDRVMSUUdQVS1jMWU5ZjI0'
    b"OS1iMzdiLTgxYzItYThkOS1iYTVjYTAyOTQ4NDEsR1BVLTliMzQxYzU5LWY5NmItYmE4NS1jMTM3LTc4YzM2NTJmZWE2NRokCg4vZGV2L252"
    b"aWRpYWN0bBIOL2Rldi9udmlkaWFjdGwaAnJ3GiYKDy9kZXYvbnZpZGlhLXV2bRIPL2Rldi9udmlkaWEtdXZtGgJydxoyChUvZGV2L252aWRp"
    b"YS11dm0tdG9vbHMSFS9kZXYvbnZpZGlhLXV2bS10b29scxoCcncaLgoTL2Rldi9udmlkaWEtbW9kZXNldBITL2Rldi9udmlkaWEtbW9kZXNl"
    b'dBoCcncaIAoML2Rldi9udmlkaWExEgwvZGV2L252aWRpYTEaAnJ3GiAKDC9kZXYvbnZpZGlhMhIML2Rldi9udmlkaWEyGgJydw=="}],'
    b'"RegisteredDevices":{"nvidia.com/gpu":["GPU-77a702db-e37f-3a74-d46d-c5713f66058c",'
    b'"GPU-9b341c59-f96b-ba85-c137-78c3652fea65","GPU-c1e9f249-b37b-81c2-a8d9-ba5ca0294841"]}},"Checksum":2530956716}'
)
"""Both files are a kubelet's."""


def test_a_kubelets_file_without_pods_is_read() -> None:
    assert checkpoint.decode(REGISTERED_ONLY, "boot") == ([], ("nvidia.com/gpu",))


def test_a_kubelets_file_with_a_pod_is_read() -> None:
    (holding,), names = checkpoint.decode(WITH_A_POD, "boot")
    assert names == ("nvidia.com/gpu",)
    assert (holding.container, set(holding.by_node), len(holding.ids)) == ("app", {1}, 2)
    assert b"NVIDIA_VISIBLE_DEVICES" in holding.response


def test_a_kubelets_file_has_no_boot_and_counts_as_earlier() -> None:
    (holding,), _ = checkpoint.decode(WITH_A_POD, "boot")
    assert holding.earlier_boot


def test_an_encoded_file_is_the_kubelets_byte_for_byte() -> None:
    holdings, _ = checkpoint.decode(WITH_A_POD, "boot")
    registered = json.loads(WITH_A_POD)["Data"]["RegisteredDevices"]
    assert checkpoint.encode(holdings, registered, "") == WITH_A_POD


def test_a_file_of_this_boot_needs_no_second_allocation() -> None:
    content = checkpoint.encode([Holding("u", "c", "a.test/b", {0: ("d",)})], {}, "now")
    (same,), _ = checkpoint.decode(content, "now")
    (other,), _ = checkpoint.decode(content, "later")
    assert (same.earlier_boot, other.earlier_boot) == (False, True)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{}",
        b"[]",
        b"\xff",
        b"[" * 100_000,
        REGISTERED_ONLY.replace(b"3952659280", b"1"),
        REGISTERED_ONLY.replace(b"GPU-", b"GPV-"),
        WITH_A_POD.replace(b'"AllocResp":"Cm', b'"AllocResp":"*m'),
        WITH_A_POD.replace(b'{"1":[', b'{"x":['),
    ],
)
def test_a_damaged_file_is_an_error(content: bytes) -> None:
    with pytest.raises(DamagedError):
        checkpoint.decode(content, "boot")


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)


@given(
    st.lists(
        st.builds(
            Holding, TEXT, TEXT, TEXT, st.dictionaries(st.integers(-1, 9), st.lists(TEXT).map(tuple)), st.binary()
        )
    ),
    st.dictionaries(TEXT, st.lists(TEXT)),
)
def test_what_is_written_is_read_again(holdings: list[Holding], registered: dict[str, list[str]]) -> None:
    found, names = checkpoint.decode(checkpoint.encode(holdings, registered, "b"), "b")
    assert (found, set(names)) == (holdings, set(registered))
