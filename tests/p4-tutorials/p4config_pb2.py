"""P4DeviceConfig, the message in which the tutorials' controllers wrap a program; no package on PyPI has it."""

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

FIELD = descriptor_pb2.FieldDescriptorProto
FIELDS = {"reassign": (1, FIELD.TYPE_BOOL), "device_data": (3, FIELD.TYPE_BYTES)}

file = descriptor_pb2.FileDescriptorProto(name="p4/tmp/p4config.proto", package="p4.tmp", syntax="proto3")
message = file.message_type.add(name="P4DeviceConfig")
for name, (number, kind) in FIELDS.items():
    message.field.add(name=name, number=number, type=kind, label=FIELD.LABEL_OPTIONAL)
pool = descriptor_pool.Default()
pool.AddSerializedFile(file.SerializeToString())
P4DeviceConfig = message_factory.MessageFactory(pool).GetPrototype(pool.FindMessageTypeByName("p4.tmp.P4DeviceConfig"))
