"""The hub's messages for the `protobuf` package, from a description made at run time."""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_FIELDS = {
    "Message": [
        ("Offset", 1, "UINT64"),
        ("Timestamp", 2, "INT64"),
        ("Type", 3, "UINT32"),
        ("Key", 4, "BYTES"),
        ("Value", 5, "BYTES"),
    ],
    "PutRequest": [("ClientID", 1, "STRING"), ("JournalDir", 2, "STRING"), ("Messages", 3, "hub.Message")],
    "PutResponse": [],
    "GetRequest": [("ClientID", 1, "STRING"), ("JournalDir", 2, "STRING"), ("Offset", 3, "UINT64")],
    "GetResponse": [("Messages", 1, "hub.Message")],
}


def _described() -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto(name="hub.proto", package="hub", syntax="proto3")
    for name, fields in _FIELDS.items():
        message = file.message_type.add(name=name)
        for field_name, number, kind in fields:
            field = message.field.add(name=field_name, number=number)
            field.label = field.LABEL_OPTIONAL
            if "." in kind:
                field.type, field.type_name, field.label = field.TYPE_MESSAGE, f".{kind}", field.LABEL_REPEATED
            else:
                field.type = getattr(field, f"TYPE_{kind}")
    return file


_POOL = descriptor_pool.DescriptorPool()
_POOL.Add(_described())


def _class_of(name: str) -> Any:
    return message_factory.GetMessageClass(_POOL.FindMessageTypeByName(f"hub.{name}"))


Message = _class_of("Message")
PutRequest = _class_of("PutRequest")
PutResponse = _class_of("PutResponse")
GetRequest = _class_of("GetRequest")
GetResponse = _class_of("GetResponse")
