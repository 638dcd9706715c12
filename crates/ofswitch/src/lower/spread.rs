//! Multipath and bundles: links and ports chosen by a hash of the packet.
//!
//! The hash is CRC-32 over the fields and the basis. Of the algorithms, "threshold" divides the hash's range; all others
//! of `multipath` take the remainder: they differ only in what moves when links come and go, and a list is replaced as a
//! whole here.

use openflow::PortNo;
use openflow::action::{Action, Bundle, HashFields, Multipath};
use openflow::error::ErrorCode;
use openflow::field::FieldId;
use pipeline::ir::{BinOp, Expr, ExternArg, LValue, Stmt};

use super::{Lowering, Step};
use crate::program::terms::{bit, both, either, resize, set, var, when};
use crate::program::{field_values, hash_into};

/// Members of a bundle that a packet may ask at most.
const MEMBERS: usize = 64;

impl Lowering<'_> {
    pub(super) fn spread_action(&mut self, action: &Action) -> Option<Step> {
        Some(match action {
            Action::Multipath(multipath) => self.multipath(multipath),
            Action::Bundle(bundle) => self.choose(bundle).map(|()| {
                let v = &self.layout.vars;
                let chosen = var(v.chosen);
                let send = crate::program::outputs::to_port(v, chosen.clone(), None);
                self.push(when(chosen.op(BinOp::Ne, bit(32, PortNo::ANY.0.into())), vec![send]));
            }),
            Action::BundleLoad(load) => self.choose(&load.bundle).and_then(|()| {
                let chosen = resize(var(self.layout.vars.chosen), load.destination.bits);
                self.write(&load.destination, chosen)
            }),
            _ => return None,
        })
    }

    /// What is hashed. Hashes that are the same for both directions add up both directions' fields.
    fn hashed(&self, fields: HashFields) -> Vec<Expr> {
        use FieldId::*;
        let keys = &self.layout.keys;
        let pair = |a: FieldId, b: FieldId| {
            let mut values = field_values(keys, [a, b]);
            let (b, a) = (values.pop(), values.pop());
            match (a, b) {
                (Some(a), Some(b)) => {
                    vec![a.clone().op(BinOp::Xor, b.clone()), a.op(BinOp::And, b)]
                }
                _ => vec![],
            }
        };
        let network = || [pair(IpSrc, IpDst), pair(Ipv6Src, Ipv6Dst)].concat();
        let transport = || [field_values(keys, [NwProto]), pair(TcpSrc, TcpDst)].concat();
        match fields {
            HashFields::EthSrc => field_values(keys, [EthSrc]),
            HashFields::NwSrc => field_values(keys, [IpSrc, Ipv6Src]),
            HashFields::NwDst => field_values(keys, [IpDst, Ipv6Dst]),
            HashFields::SymmetricL3 => network(),
            HashFields::SymmetricL3L4 | HashFields::SymmetricL3L4Udp => [network(), transport()].concat(),
            HashFields::SymmetricL4 => {
                let link = [pair(EthSrc, EthDst), field_values(keys, [EthType, VlanTci])].concat();
                [link, network(), transport()].concat()
            }
        }
    }

    fn multipath(&mut self, multipath: &Multipath) -> Step {
        let hash = self.layout.vars.hash;
        let mut input = self.hashed(multipath.fields);
        input.push(self.number(16, multipath.basis.into()));
        self.push(hash_into(hash, input));
        let links = self.number(32, u64::from(multipath.max_link) + 1);
        let link = match multipath.algorithm {
            // The hash as a fraction of its range, times the links.
            1 => resize(var(hash), 64).op(BinOp::Mul, resize(links, 64)).slice(63, 32),
            _ => var(hash).op(BinOp::Rem, links),
        };
        self.write(&multipath.destination, resize(link, multipath.destination.bits))
    }

    /// Chooses a member: the first live one, or the live one with the highest hash.
    fn choose(&mut self, bundle: &Bundle) -> Step {
        if bundle.members.len() > MEMBERS {
            return Err(ErrorCode::BacTooMany);
        }
        let (hash, best, live, chosen) = {
            let v = &self.layout.vars;
            (v.hash, v.best, v.live, v.chosen)
        };
        let none = || bit(32, PortNo::ANY.0.into());
        self.push(set(chosen, none()));
        self.push(set(best, bit(32, 0)));
        let input = self.hashed(bundle.fields);
        for (at, member) in bundle.members.iter().enumerate().filter(|(_, member)| **member != PortNo::ANY) {
            let port = self.number(32, member.0.into());
            let asked = Stmt::Extern(
                self.layout.is_live,
                vec![ExternArg::In(port.clone()), ExternArg::Out(LValue::Var(live))],
            );
            let unset = var(chosen).equals(none());
            if bundle.algorithm == 0 {
                let take = when(var(live), vec![set(chosen, port)]);
                self.push(when(unset, vec![asked, take]));
                continue;
            }
            let mut values = input.clone();
            values.push(self.number(16, bundle.basis.into()));
            values.push(bit(16, at as u64));
            let higher = either(unset, var(hash).op(BinOp::Gt, var(best)));
            let take = when(both(var(live), higher), vec![set(chosen, port), set(best, var(hash))]);
            [hash_into(hash, values), asked, take].into_iter().for_each(|stmt| self.push(stmt));
        }
        Ok(())
    }
}
