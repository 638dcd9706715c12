//! Adding and removing headers, TTLs, and the setters of versions before 1.2.

use openflow::action::Action;
use openflow::error::ErrorCode;
use openflow::field::FieldId;
use pipeline::ir::{Expr, Stmt};

use super::{Lowering, Step};
use crate::program::outputs::{self, to_controller};
use crate::program::terms::bit;
use crate::program::{decrement, field_values};

impl Lowering<'_> {
    pub(super) fn edit_action(&mut self, action: &Action) -> Option<Step> {
        use FieldId as F;
        let edits = &self.layout.edits;
        match action {
            Action::PushVlan(kind) => self.typed(edits.push_vlan, *kind),
            Action::PopVlan => self.push(Stmt::Do(edits.pop_vlan, vec![])),
            Action::PushMpls(kind) => self.typed(edits.push_mpls, *kind),
            Action::PopMpls(kind) => self.typed(edits.pop_mpls, *kind),
            Action::PushPbb(kind) => self.typed(edits.push_pbb, *kind),
            Action::PopPbb => self.push(Stmt::Do(edits.pop_pbb, vec![])),
            Action::CopyTtlOut => self.push(Stmt::Do(self.layout.copy_ttl_out, vec![])),
            Action::CopyTtlIn => self.push(Stmt::Do(self.layout.copy_ttl_in, vec![])),
            Action::DecNwTtl => return Some(self.dec_ttl(F::NwTtl, &[0])),
            Action::DecMplsTtl => return Some(self.dec_ttl(F::MplsTtl, &[0])),
            Action::DecTtlIds(ids) => return Some(self.dec_ttl(F::NwTtl, &ids.0)),
            // A tag is added where there is none, as Open vSwitch does in all versions.
            Action::SetVlanVid(vid) => {
                return Some(self.masked(F::VlanTci, 0x1000 | u64::from(*vid), 0x1fff));
            }
            Action::SetVlanPcp(pcp) => {
                return Some(self.masked(F::VlanTci, 0x1000 | u64::from(*pcp) << 13, 0xf000));
            }
            Action::SetDlSrc(mac) => return Some(self.whole(&[F::EthSrc], mac_number(mac.0.0))),
            Action::SetDlDst(mac) => return Some(self.whole(&[F::EthDst], mac_number(mac.0.0))),
            Action::SetNwSrc(address) => return Some(self.whole(&[F::IpSrc], (*address).into())),
            Action::SetNwDst(address) => return Some(self.whole(&[F::IpDst], (*address).into())),
            Action::SetNwTos(tos) => return Some(self.whole(&[F::IpDscp], u64::from(*tos) >> 2)),
            Action::SetNwEcn(ecn) => return Some(self.whole(&[F::NwEcn], (*ecn).into())),
            Action::SetNwTtl(ttl) => return Some(self.whole(&[F::NwTtl], (*ttl).into())),
            Action::SetMplsLabel(label) => return Some(self.whole(&[F::MplsLabel], (*label).into())),
            Action::SetMplsTc(tc) => return Some(self.whole(&[F::MplsTc], (*tc).into())),
            Action::SetMplsTtl(ttl) => return Some(self.whole(&[F::MplsTtl], (*ttl).into())),
            Action::SetTpSrc(port) => {
                return Some(self.whole(&[F::TcpSrc, F::UdpSrc, F::SctpSrc], (*port).into()));
            }
            Action::SetTpDst(port) => {
                return Some(self.whole(&[F::TcpDst, F::UdpDst, F::SctpDst], (*port).into()));
            }
            _ => return None,
        }
        Some(Ok(()))
    }

    fn typed(&mut self, action: pipeline::ir::ActionId, kind: u16) {
        let kind = self.number(16, kind.into());
        self.push(Stmt::Do(action, vec![kind]));
    }

    /// Sets all of these fields; those that the packet lacks stay.
    fn whole(&mut self, fields: &[FieldId], value: u64) -> Step {
        fields.iter().try_for_each(|id| self.masked(*id, value, u64::MAX))
    }

    fn masked(&mut self, id: FieldId, value: u64, mask: u64) -> Step {
        let field = id.field();
        let value = self.number(field.bits, value);
        self.store(field, value, bit(field.bits, mask))
    }

    /// Decrements a TTL; controllers with these ids get packets whose TTL expires.
    fn dec_ttl(&mut self, id: FieldId, controllers: &[u16]) -> Step {
        let store = *self.layout.stores.get(&id).ok_or(ErrorCode::BacBadType)?;
        let ttl = field_values(&self.layout.keys, [id]).pop().unwrap_or_else(|| bit(8, 0));
        let mut expired = Vec::new();
        for controller in controllers {
            let reason: Expr = bit(8, outputs::INVALID_TTL.into());
            let sender = self.sender(*controller);
            expired.push(to_controller(&self.layout.vars, reason, None, sender, []));
        }
        let reason = self.layout.reasons.invalid_ttl;
        self.push(decrement(&self.layout.headers, id, store, ttl, reason, expired));
        Ok(())
    }
}

fn mac_number(bytes: [u8; 6]) -> u64 {
    bytes.into_iter().fold(0, |number, byte| number << 8 | u64::from(byte))
}
