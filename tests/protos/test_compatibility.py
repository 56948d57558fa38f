"""The wire keeps the promise of the last release, and the check that says so can fail."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from foedus.protos import compatibility
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorSet,
    MethodDescriptorProto,
)


def test_the_wire_keeps_the_promise_of_the_last_release() -> None:
    assert compatibility.breaking_changes(compatibility.baseline(), compatibility.current()) == []


def test_the_baseline_covers_every_schema() -> None:
    schemas = {path.name for path in compatibility.BASELINE.parent.glob("v1/*.proto")}
    assert {file.name.rsplit("/")[-1] for file in compatibility.current().file} == schemas
    assert {file.name.rsplit("/")[-1] for file in compatibility.baseline().file} == schemas


def message(described: FileDescriptorSet, name: str) -> DescriptorProto:
    return next(found for file in described.file for found in file.message_type if found.name == name)


def field(described: FileDescriptorSet, holder: str, name: str) -> FieldDescriptorProto:
    return next(found for found in message(described, holder).field if found.name == name)


def enum(described: FileDescriptorSet, name: str) -> EnumDescriptorProto:
    return next(found for file in described.file for found in file.enum_type if found.name == name)


def method(described: FileDescriptorSet, name: str) -> MethodDescriptorProto:
    return next(
        found
        for file in described.file
        for service in file.service
        for found in service.method
        if f"{service.name}.{found.name}" == name
    )


def remove_message(described: FileDescriptorSet) -> None:
    file = next(file for file in described.file if any(found.name == "Receipt" for found in file.message_type))
    file.message_type.remove(message(described, "Receipt"))


def remove_field(described: FileDescriptorSet) -> None:
    message(described, "Hello").field.remove(field(described, "Hello", "unix_seconds"))


def renumber(described: FileDescriptorSet) -> None:
    field(described, "Hello", "unix_seconds").number = 9


def swap_numbers(described: FileDescriptorSet) -> None:
    field(described, "Work", "run").number, field(described, "Work", "round").number = 2, 1


def rename(described: FileDescriptorSet) -> None:
    field(described, "Hello", "version").name = "release"


def retype(described: FileDescriptorSet) -> None:
    field(described, "Work", "round").type = FieldDescriptorProto.TYPE_UINT64


def refer_elsewhere(described: FileDescriptorSet) -> None:
    field(described, "Refusal", "work").type_name = ".foedus.v1.Hello"


def repeat(described: FileDescriptorSet) -> None:
    field(described, "Heartbeat", "progress").label = FieldDescriptorProto.LABEL_REPEATED


def leave_oneof(described: FileDescriptorSet) -> None:
    field(described, "SiteMessage", "hello").ClearField("oneof_index")


def retype_map_value(described: FileDescriptorSet) -> None:
    message(described, "Evaluation").nested_type[0].field[1].type = FieldDescriptorProto.TYPE_FLOAT


def remove_enum(described: FileDescriptorSet) -> None:
    file = next(file for file in described.file if any(found.name == "Outcome" for found in file.enum_type))
    file.enum_type.remove(enum(described, "Outcome"))


def remove_enum_value(described: FileDescriptorSet) -> None:
    del enum(described, "Outcome").value[3]


def rename_enum_value(described: FileDescriptorSet) -> None:
    enum(described, "Phase").value[1].name = "PHASE_FIT"


def remove_service(described: FileDescriptorSet) -> None:
    file = next(file for file in described.file if any(found.name == "Enrolment" for found in file.service))
    del file.service[:]


def remove_rpc(described: FileDescriptorSet) -> None:
    file = next(file for file in described.file if any(found.name == "Enrolment" for found in file.service))
    file.service[0].method.remove(method(described, "Enrolment.Renew"))


def stop_streaming(described: FileDescriptorSet) -> None:
    method(described, "Transfer.Download").server_streaming = False


def stop_client_streaming(described: FileDescriptorSet) -> None:
    method(described, "Session.Open").client_streaming = False


def take_another_request(described: FileDescriptorSet) -> None:
    method(described, "Operations.ListRuns").input_type = ".foedus.v1.RunRequest"


def give_another_reply(described: FileDescriptorSet) -> None:
    method(described, "Operations.ShowRun").output_type = ".foedus.v1.ListRunsReply"


@pytest.mark.parametrize(
    ("mutate", "said"),
    [
        (remove_message, ["message foedus.v1.Receipt was removed"]),
        (remove_field, ["foedus.v1.Hello.unix_seconds (number 3) was removed or renumbered"]),
        (renumber, ["foedus.v1.Hello.unix_seconds (number 3) was removed or renumbered"]),
        (
            swap_numbers,
            [
                "foedus.v1.Work.run: its name was run and is now round",
                "foedus.v1.Work.run: its type was TYPE_STRING and is now TYPE_UINT32",
                "foedus.v1.Work.round: its name was round and is now run",
                "foedus.v1.Work.round: its type was TYPE_UINT32 and is now TYPE_STRING",
            ],
        ),
        (rename, ["foedus.v1.Hello.version: its name was version and is now release"]),
        (retype, ["foedus.v1.Work.round: its type was TYPE_UINT32 and is now TYPE_UINT64"]),
        (refer_elsewhere, ["foedus.v1.Refusal.work: its type was .foedus.v1.Work and is now .foedus.v1.Hello"]),
        (repeat, ["foedus.v1.Heartbeat.progress: its label was LABEL_OPTIONAL and is now LABEL_REPEATED"]),
        (leave_oneof, ["foedus.v1.SiteMessage.hello: its oneof was body and is now none"]),
        (
            retype_map_value,
            ["foedus.v1.Evaluation.MetricsEntry.value: its type was TYPE_DOUBLE and is now TYPE_FLOAT"],
        ),
        (remove_enum, ["enum foedus.v1.Outcome was removed"]),
        (remove_enum_value, ["foedus.v1.Outcome.OUTCOME_LATE (number 3) was removed or renumbered"]),
        (rename_enum_value, ["foedus.v1.Phase.PHASE_TRAIN: its name is now PHASE_FIT"]),
        (remove_service, ["service foedus.v1.Enrolment was removed"]),
        (remove_rpc, ["rpc foedus.v1.Enrolment.Renew was removed"]),
        (stop_streaming, ["rpc foedus.v1.Transfer.Download: it streams otherwise than before"]),
        (stop_client_streaming, ["rpc foedus.v1.Session.Open: it streams otherwise than before"]),
        (
            take_another_request,
            [
                "rpc foedus.v1.Operations.ListRuns: its request was .foedus.v1.ListRunsRequest"
                " and is now .foedus.v1.RunRequest"
            ],
        ),
        (
            give_another_reply,
            ["rpc foedus.v1.Operations.ShowRun: its reply was .foedus.v1.Run and is now .foedus.v1.ListRunsReply"],
        ),
    ],
)
def test_every_breaking_change_is_named(mutate: Callable[[FileDescriptorSet], None], said: list[str]) -> None:
    old = compatibility.baseline()
    new = compatibility.baseline()
    mutate(new)
    assert compatibility.breaking_changes(old, new) == said


def test_adding_breaks_nothing() -> None:
    old = compatibility.baseline()
    new = compatibility.baseline()
    message(new, "Hello").field.add(name="hint", number=50, type=FieldDescriptorProto.TYPE_STRING, label=1)
    enum(new, "Outcome").value.add(name="OUTCOME_NEW", number=50)
    new.file[0].message_type.add(name="Fresh")
    assert compatibility.breaking_changes(old, new) == []
    assert compatibility.breaking_changes(new, old) != []


def test_the_command_says_what_broke(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    promised = compatibility.baseline()
    message(promised, "Hello").field.add(name="gone", number=50, type=FieldDescriptorProto.TYPE_STRING, label=1)
    path = tmp_path / "baseline.binpb"
    path.write_bytes(promised.SerializeToString())
    monkeypatch.setattr(compatibility, "baseline", lambda: FileDescriptorSet.FromString(path.read_bytes()))
    monkeypatch.setattr(compatibility, "BASELINE", path)

    assert compatibility.main([]) == 1
    assert capsys.readouterr().err == "foedus.v1.Hello.gone (number 50) was removed or renumbered\n"
    assert compatibility.main(["--update"]) == 0
    assert compatibility.main([]) == 0
