"""Does the wire still keep the promise of the last release?

The promise is ``baseline.binpb``: the descriptors of every schema as they were released. Adding
is free; removing, renaming, renumbering and retyping would break a site that was not updated
(one minor version of difference is accepted), and renaming would break JSON as well.

``python -m foedus.protos.compatibility`` lists what is broken and exits 1; with ``--update`` it
moves the baseline, which is done at a release and at no other time.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorSet,
    ServiceDescriptorProto,
)

from .. import files
from .v1 import common_pb2, enrolment_pb2, operations_pb2, session_pb2, transfer_pb2

BASELINE = Path(__file__).with_name("baseline.binpb")
SCHEMAS = (common_pb2, enrolment_pb2, operations_pb2, session_pb2, transfer_pb2)


def current() -> FileDescriptorSet:
    """The descriptors of the schemas that this code speaks."""
    described = FileDescriptorSet()
    for schema in SCHEMAS:
        schema.DESCRIPTOR.CopyToProto(described.file.add())
    return described


def baseline(path: Path = BASELINE) -> FileDescriptorSet:
    """The descriptors that were promised at the last release."""
    return FileDescriptorSet.FromString(path.read_bytes())


def breaking_changes(old: FileDescriptorSet, new: FileDescriptorSet) -> list[str]:
    """What of ``old`` a peer that speaks ``new`` no longer understands, one sentence each; [] is compatible."""
    return [
        *_messages(_all_messages(old), _all_messages(new)),
        *_enums(_all_enums(old), _all_enums(new)),
        *_services(_all_services(old), _all_services(new)),
    ]


def _messages(old: dict[str, DescriptorProto], new: dict[str, DescriptorProto]) -> Iterator[str]:
    for name, was in old.items():
        if name not in new:
            yield f"message {name} was removed"
            continue
        fields = {field.number: field for field in new[name].field}
        for field in was.field:
            if field.number not in fields:
                yield f"{name}.{field.name} (number {field.number}) was removed or renumbered"
                continue
            seen = fields[field.number]
            for aspect, before, after in zip(
                ("name", "type", "label", "oneof"),
                _promise(field, was),
                _promise(seen, new[name]),
                strict=True,
            ):
                if before != after:
                    yield f"{name}.{field.name}: its {aspect} was {before or 'none'} and is now {after or 'none'}"


def _promise(field: FieldDescriptorProto, message: DescriptorProto) -> tuple[str, str, str, str]:
    oneof = message.oneof_decl[field.oneof_index].name if field.HasField("oneof_index") else ""
    kind = field.type_name or FieldDescriptorProto.Type.Name(field.type)
    return field.name, kind, FieldDescriptorProto.Label.Name(field.label), oneof


def _enums(old: dict[str, EnumDescriptorProto], new: dict[str, EnumDescriptorProto]) -> Iterator[str]:
    for name, was in old.items():
        if name not in new:
            yield f"enum {name} was removed"
            continue
        values = {value.number: value.name for value in new[name].value}
        for value in was.value:
            now = values.get(value.number)
            if now is None:
                yield f"{name}.{value.name} (number {value.number}) was removed or renumbered"
            elif now != value.name:
                yield f"{name}.{value.name}: its name is now {now}"


def _services(old: dict[str, ServiceDescriptorProto], new: dict[str, ServiceDescriptorProto]) -> Iterator[str]:
    for name, was in old.items():
        if name not in new:
            yield f"service {name} was removed"
            continue
        methods = {method.name: method for method in new[name].method}
        for method in was.method:
            now = methods.get(method.name)
            if now is None:
                yield f"rpc {name}.{method.name} was removed"
                continue
            if method.input_type != now.input_type:
                yield f"rpc {name}.{method.name}: its request was {method.input_type} and is now {now.input_type}"
            if method.output_type != now.output_type:
                yield f"rpc {name}.{method.name}: its reply was {method.output_type} and is now {now.output_type}"
            if (method.client_streaming, method.server_streaming) != (now.client_streaming, now.server_streaming):
                yield f"rpc {name}.{method.name}: it streams otherwise than before"


def _all_messages(described: FileDescriptorSet) -> dict[str, DescriptorProto]:
    return {name: message for file in described.file for name, message in _nested(file.package, file.message_type)}


def _nested(scope: str, messages: Iterable[DescriptorProto]) -> Iterator[tuple[str, DescriptorProto]]:
    for message in messages:
        name = f"{scope}.{message.name}"
        yield name, message
        yield from _nested(name, message.nested_type)


def _all_enums(described: FileDescriptorSet) -> dict[str, EnumDescriptorProto]:
    found = {f"{file.package}.{enum.name}": enum for file in described.file for enum in file.enum_type}
    for scope, message in _all_messages(described).items():
        found |= {f"{scope}.{enum.name}": enum for enum in message.enum_type}
    return found


def _all_services(described: FileDescriptorSet) -> dict[str, ServiceDescriptorProto]:
    return {f"{file.package}.{service.name}": service for file in described.file for service in file.service}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Check the wire against the last release.")
    parser.add_argument("--update", action="store_true", help="promise the present wire from now on (at a release)")
    if parser.parse_args(arguments).update:
        files.write(BASELINE, current().SerializeToString(deterministic=True))
        return 0
    broken = breaking_changes(baseline(), current())
    for change in broken:
        print(change, file=sys.stderr)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
