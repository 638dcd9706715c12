//! Tunnel options: which of them are which field of tunnel metadata.
//!
//! All options share one key. A map gives its field a range of bits in it; a field without a map cannot be matched or
//! set. No packet comes out of a tunnel here, so the key is zero until actions set it.

use std::collections::BTreeMap;

use openflow::error::ErrorCode;
use openflow::field::FieldId;
use openflow::instruction::Instructions;
use openflow::message::{TlvMap, TlvTableCommand, TlvTableMod, TlvTableReply};
use openflow::oxm::Oxm;
use pipeline::bits::Bits;

use crate::program::{Layout, TUNNEL_METADATA};

/// The maps, by the number of their field.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tunnels {
    maps: BTreeMap<u16, (TlvMap, u16)>,
}

impl Tunnels {
    /// Changes the maps.
    pub(crate) fn change(&mut self, request: &TlvTableMod) -> Result<(), ErrorCode> {
        match request.command {
            TlvTableCommand::Clear => self.maps.clear(),
            TlvTableCommand::Delete => {
                for map in &request.maps {
                    let found = self.maps.get(&map.index);
                    if found.is_none_or(|(known, _)| (known.class, known.kind) != (map.class, map.kind)) {
                        return Err(ErrorCode::NxTtmfcInvalidTlvDel);
                    }
                }
                self.maps.retain(|index, _| request.maps.iter().all(|map| map.index != *index));
            }
            TlvTableCommand::Add => {
                let mut changed = self.clone();
                request.maps.iter().try_for_each(|map| changed.add(*map))?;
                *self = changed;
            }
        }
        Ok(())
    }

    fn add(&mut self, map: TlvMap) -> Result<(), ErrorCode> {
        if self.maps.contains_key(&map.index) {
            return Err(ErrorCode::NxTtmfcAlreadyMapped);
        }
        if self.maps.values().any(|(known, _)| (known.class, known.kind) == (map.class, map.kind)) {
            return Err(ErrorCode::NxTtmfcDupEntry);
        }
        // The first gap that is large enough.
        let mut taken: Vec<(u16, u16)> =
            self.maps.values().map(|(map, at)| (*at, map.length.into())).collect();
        taken.sort_unstable();
        let mut at = 0;
        for (start, len) in taken {
            if start.saturating_sub(at) >= map.length.into() {
                break;
            }
            at = start + len;
        }
        if at + u16::from(map.length) > TUNNEL_METADATA {
            return Err(ErrorCode::NxTtmfcTableFull);
        }
        self.maps.insert(map.index, (map, at));
        Ok(())
    }

    /// The maps as a reply.
    pub(crate) fn reply(&self) -> TlvTableReply {
        let maps = self.maps.values().map(|(map, _)| *map).collect();
        TlvTableReply { max_space: TUNNEL_METADATA.into(), max_fields: 64, maps }
    }

    /// Gives the options that instructions name the length of their maps.
    pub(crate) fn fit(&self, instructions: &mut Instructions) {
        if self.maps.is_empty() {
            return;
        }
        instructions.for_each_header(&mut |header| {
            let id = header.field().filter(|field| field.is_variable()).map(|field| field.id);
            if let Some((_, bits)) = id.and_then(|id| self.span(id)) {
                header.length = (bits / 8) as u8;
            }
        });
    }

    /// Where a field's option is among all options: its lowest bit, and bits. `None`: it has no map.
    pub(crate) fn span(&self, id: FieldId) -> Option<(u16, u16)> {
        let index = (id as u16).checked_sub(FieldId::TunMetadata0 as u16)?;
        let (map, at) = self.maps.get(&index)?;
        let length = u16::from(map.length);
        Some(((TUNNEL_METADATA - at - length) * 8, length * 8))
    }

    /// A pattern of a field: key, value and mask.
    pub(crate) fn condition(&self, id: FieldId, oxm: &Oxm) -> Result<(u32, Bits, Bits), ErrorCode> {
        let (low, bits) = self.span(id).ok_or(ErrorCode::NxFmfcInvalidTlvField)?;
        if oxm.value.len() * 8 > usize::from(bits) {
            return Err(ErrorCode::NxFmfcInvalidTlvField);
        }
        let keys = &Layout::get().keys.list;
        let key = keys.iter().position(|key| key.name == "tun_metadata").ok_or(ErrorCode::BmcBadField)?;
        let place = |bytes: &[u8]| Bits::from_bytes(TUNNEL_METADATA * 8, bytes).shl(low.into());
        let ones = vec![0xff; oxm.value.len()];
        Ok((key as u32, place(&oxm.value), place(oxm.mask.as_deref().unwrap_or(&ones))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_take_the_first_gap() {
        let mut tunnels = Tunnels::default();
        let add = |tunnels: &mut Tunnels, index, length| {
            let map = TlvMap { class: 0xffff, kind: index as u8, length, index };
            tunnels.change(&TlvTableMod { command: TlvTableCommand::Add, maps: vec![map] })
        };
        assert_eq!(add(&mut tunnels, 0, 124), Ok(()));
        assert_eq!(add(&mut tunnels, 1, 124), Ok(()));
        assert_eq!(add(&mut tunnels, 2, 12), Err(ErrorCode::NxTtmfcTableFull));
        assert_eq!(add(&mut tunnels, 2, 8), Ok(()));
        assert_eq!(add(&mut tunnels, 1, 4), Err(ErrorCode::NxTtmfcAlreadyMapped));
        let gone = TlvMap { class: 0xffff, kind: 0, length: 124, index: 0 };
        tunnels.change(&TlvTableMod { command: TlvTableCommand::Delete, maps: vec![gone] }).unwrap();
        assert_eq!(add(&mut tunnels, 3, 4), Ok(()));
        assert_eq!(tunnels.maps[&3].1, 0);
    }
}
