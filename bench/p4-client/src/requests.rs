//! Requests from files of entities.

use std::fs;
use std::path::Path;

use p4runtime_proto::v1::entity::Entity as Kind;
use p4runtime_proto::v1::update::Type;
use p4runtime_proto::v1::{Update, WriteRequest};
use p4switch::text;
use prost::Message;
use prost::bytes::Bytes;

use crate::controller::Controller;
use crate::failure::Failure;

/// Encoded requests, with the number of updates of each.
pub(crate) struct Requests(pub(crate) Vec<(Bytes, usize)>);

impl Requests {
    /// Reads the entities of a file, a line each, for requests of `batch` updates.
    pub(crate) fn read(
        controller: &Controller,
        kind: Type,
        path: &Path,
        batch: usize,
    ) -> Result<Self, Failure> {
        let content =
            fs::read_to_string(path).map_err(|error| Failure::File { path: path.to_owned(), error })?;
        let mut updates = Vec::new();
        for (at, line) in content.lines().enumerate() {
            if line.trim().is_empty() || line.trim_start().starts_with('#') {
                continue;
            }
            let failed = |error| Failure::Line { path: path.to_owned(), line: at + 1, error };
            let mut entity = text::parse(&controller.program, line).map_err(failed)?;
            if let (Type::Delete, Some(Kind::TableEntry(entry))) = (kind, &mut entity.entity) {
                // Its key names it.
                entry.action = None;
            }
            updates.push(Update { r#type: kind.into(), entity: Some(entity) });
        }
        let encode = |updates: &[Update]| {
            let request = WriteRequest {
                device_id: controller.device,
                election_id: Some(controller.election),
                updates: updates.to_vec(),
                ..WriteRequest::default()
            };
            (Bytes::from(request.encode_to_vec()), updates.len())
        };
        Ok(Self(updates.chunks(batch).map(encode).collect()))
    }
}
