"""The generated CRI classes, compared with api.proto and the published CRI v1 (cri-v1.txt)."""

from collections.abc import Iterator
from pathlib import Path

from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor

from proto import generate
from proto.cri import api_pb2

TABLE = Path(__file__).parents[1].joinpath("cri-v1.txt")
PACKAGE = "runtime.v1."
SCALARS = {
    getattr(FieldDescriptor, f"TYPE_{name.upper()}"): name
    for name in ("bool", "bytes", "double", "int32", "int64", "string", "uint32", "uint64")
}


def published(kind: str) -> list[str]:
    lines = TABLE.read_text().splitlines()
    return sorted(line for line in lines if line.startswith(f"{kind} "))


def type_of(field: FieldDescriptor) -> str:
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        key, value = field.message_type.fields
        return f"map<{type_of(key)},{type_of(value)}>"
    if field.message_type is not None:
        name = field.message_type.full_name.removeprefix(PACKAGE)
    elif field.enum_type is not None:
        name = field.enum_type.full_name.removeprefix(PACKAGE)
    else:
        name = SCALARS[field.type]
    return f"repeated {name}" if field.is_repeated else name


def messages() -> Iterator[Descriptor]:
    yield from api_pb2.DESCRIPTOR.message_types_by_name.values()


def enums() -> Iterator[EnumDescriptor]:
    yield from api_pb2.DESCRIPTOR.enum_types_by_name.values()
    for message in messages():
        yield from message.enum_types


def test_the_checked_in_stubs_are_what_api_proto_gives() -> None:
    assert generate.stale() == []


def test_differing_stub_is_found(tmp_path: Path) -> None:
    for name in generate.STUBS:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes((generate.ROOT / name).read_bytes())
    (tmp_path / "proto/cri/api_pb2.pyi").write_text("# edited by hand\n")
    assert generate.stale(tmp_path) == ["proto/cri/api_pb2.pyi"]


def test_messages_have_the_published_fields_and_numbers() -> None:
    ours = []
    for message in messages():
        fields = sorted(message.fields, key=lambda field: field.number)
        ours.append(
            f"message {message.name}" + "".join(f"; {field.number} {type_of(field)} {field.name}" for field in fields)
        )
    assert sorted(ours) == published("message")


def test_every_enum_has_the_published_values() -> None:
    ours = []
    for enum in enums():
        values = sorted(enum.values, key=lambda value: value.number)
        ours.append(
            f"enum {enum.full_name.removeprefix(PACKAGE)}"
            + "".join(f"; {value.number} {value.name}" for value in values)
        )
    assert sorted(ours) == published("enum")


def test_every_published_rpc_is_there_with_its_types() -> None:
    ours = []
    for service in api_pb2.DESCRIPTOR.services_by_name.values():
        for rpc in service.methods:
            stream = "stream " if rpc.server_streaming else ""
            assert not rpc.client_streaming
            ours.append(f"service {service.name} {rpc.name} {rpc.input_type.name} {stream}{rpc.output_type.name}")
    assert sorted(ours) == published("service")


def test_package_is_runtime_v1() -> None:
    assert api_pb2.DESCRIPTOR.package == "runtime.v1"
