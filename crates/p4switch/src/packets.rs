//! Packets from and to controllers: their metadata is a header in front of the packet.

use p4::info::proto::ControllerPacketMetadata;
use p4runtime_proto::v1::{PacketIn, PacketMetadata, PacketOut};
use pipeline::bits::{self, Bits};
use pipeline::ir::{FieldType, HeaderType, Program};

use crate::{Failure, bytestring};

/// The header of packets in one direction.
#[derive(Debug)]
pub(crate) struct PacketHeader {
    name: String,
    fields: Vec<PacketField>,
    /// Bytes of the header.
    len: usize,
}

#[derive(Debug)]
struct PacketField {
    /// Id and name; `None` for bits that controllers do not see.
    seen: Option<(u32, String)>,
    /// Bits that a controller may set.
    width: u16,
    /// Place and width in the header, bits.
    at: usize,
    wire_width: u16,
    /// Whether packets from the controller may leave it out.
    padding: bool,
}

impl PacketHeader {
    /// The header that a P4Info describes. Fields that it hides are found in the program's header type.
    pub(crate) fn of(header: &ControllerPacketMetadata, program: &Program) -> Self {
        let metadata = &header.metadata;
        let given = || metadata.iter().map(|field| (field.name.as_str(), field.bitwidth));
        let is_in = |ty: &&HeaderType| {
            let mut fields = scalars(ty);
            given().all(|(name, width)| {
                let same =
                    |(other, bits): (&str, u16)| other == name && (width == 0 || width == i32::from(bits));
                fields.any(same)
            })
        };
        let candidates = program.header_types.iter().filter(|ty| !ty.has_varbit()).filter(is_in);
        let found = candidates.min_by_key(|ty| ty.fields.len()).filter(|_| !metadata.is_empty());
        let wire: Vec<(&str, u16)> = match found {
            Some(ty) => scalars(ty).collect(),
            None => given().map(|(name, width)| (name, u16::try_from(width).unwrap_or(0))).collect(),
        };
        let mut left = metadata.iter().peekable();
        let mut at = 0;
        let mut fields = Vec::new();
        for (name, wire_width) in wire {
            let field = left.next_if(|field| field.name == name);
            let width = field.and_then(|field| u16::try_from(field.bitwidth).ok()).filter(|width| *width > 0);
            fields.push(PacketField {
                seen: field.map(|field| (field.id, field.name.clone())),
                width: width.unwrap_or(wire_width).min(wire_width),
                at,
                wire_width,
                padding: field
                    .is_none_or(|field| field.annotations.iter().any(|text| text.starts_with("@padding"))),
            });
            at += usize::from(wire_width);
        }
        let name = header.preamble.as_ref().map_or("", |preamble| preamble.name.as_str());
        Self { name: name.to_owned(), fields, len: at.div_ceil(8) }
    }

    /// The bytes of a packet from a controller.
    pub(crate) fn encode(&self, packet: &PacketOut) -> Result<Vec<u8>, Failure> {
        let mut bytes = Vec::with_capacity(self.len + packet.payload.len());
        bytes.resize(self.len, 0);
        for (i, item) in packet.metadata.iter().enumerate() {
            let field = self.fields.iter().find(|field| field.id() == Some(item.metadata_id));
            let Some(field) = field else {
                return Err(self.refuse(format!("it has no field {}", item.metadata_id)));
            };
            if packet.metadata.iter().take(i).any(|other| other.metadata_id == item.metadata_id) {
                return Err(self.refuse(format!("field {} is given twice", field.name())));
            }
            let value = bytestring::unsigned(&item.value, field.width)
                .map_err(|failure| failure.at(format_args!("{} field {}", self.name, field.name())))?;
            bits::write(&mut bytes, field.at, &value.resize(field.wire_width));
        }
        let missing = self
            .fields
            .iter()
            .filter(|field| !field.padding)
            .find(|field| packet.metadata.iter().all(|item| Some(item.metadata_id) != field.id()));
        if let Some(field) = missing {
            return Err(self.refuse(format!("field {} is missing", field.name())));
        }
        bytes.extend_from_slice(&packet.payload);
        Ok(bytes)
    }

    /// A packet for controllers. One that is shorter than the header is all payload.
    pub(crate) fn decode(&self, bytes: &[u8]) -> PacketIn {
        let Some((header, payload)) = bytes.split_at_checked(self.len) else {
            return PacketIn { payload: bytes.to_vec(), metadata: vec![] };
        };
        let metadata = self.fields.iter().filter_map(|field| {
            let value = bits::read(header, field.at, field.wire_width)
                .unwrap_or_else(|| Bits::zero(field.wire_width));
            Some(PacketMetadata { metadata_id: field.id()?, value: bytestring::of(&value) })
        });
        PacketIn { metadata: metadata.collect(), payload: payload.to_vec() }
    }

    fn refuse(&self, message: String) -> Failure {
        Failure::invalid(format!("header {}: {message} (fields: {})", self.name, self.names()))
    }

    fn names(&self) -> String {
        let names = self.fields.iter().filter_map(|field| field.seen.as_ref());
        names.map(|(id, name)| format!("{id} {name}")).collect::<Vec<_>>().join(", ")
    }
}

impl PacketField {
    fn id(&self) -> Option<u32> {
        self.seen.as_ref().map(|(id, _)| *id)
    }

    fn name(&self) -> &str {
        self.seen.as_ref().map_or("(hidden)", |(_, name)| name)
    }
}

/// The fields of a header type, in wire order.
fn scalars(ty: &HeaderType) -> impl Iterator<Item = (&str, u16)> {
    ty.fields.iter().filter_map(|field| match field.ty {
        FieldType::Scalar(ty) => Some((field.name.as_str(), ty.width())),
        FieldType::Varbit(_) => None,
    })
}
