//! Meters: an entry of the program's table of meters, whose action asks the meter cell of each band.
//!
//! The highest rate that is exceeded decides (OpenFlow 1.3.5, section 5.7.1): the bands are asked from the lowest rate on,
//! and the last one that was exceeded applies.

use openflow::field::FieldId;
use openflow::message::{Band, BandKind, MeterFlags};
use pipeline::ir::{self, BinOp, Expr, LValue, Param, Stmt, Type};
use pipeline::state::Rates;

use super::Body;
use crate::program::Layout;
use crate::program::terms::{bit, both, set, var, when};

/// The rates of a band, in packets or bytes.
pub(crate) fn rates(band: &Band, flags: MeterFlags) -> Rates {
    // Kilobits are units of 125 bytes.
    let unit = if flags.contains(MeterFlags::PKTPS) { 1 } else { 125 };
    let rate = u64::from(band.rate) * unit;
    let burst = match flags.contains(MeterFlags::BURST) && band.burst > 0 {
        true => u64::from(band.burst) * unit,
        false => rate,
    };
    Rates::Single { rate, burst, excess: 0 }
}

/// The action of a meter whose bands have these cells.
pub(crate) fn meter(flags: MeterFlags, bands: &[(Band, u32)]) -> Body {
    let layout = Layout::get();
    let v = &layout.vars;
    let cells = if flags.contains(MeterFlags::PKTPS) { layout.packet_rates } else { layout.byte_rates };
    let mut sorted: Vec<&(Band, u32)> = bands.iter().collect();
    sorted.sort_by_key(|(band, _)| band.rate);
    let mut body = vec![set(v.chosen, bit(32, 0))];
    let mut params = Vec::new();
    let mut args = Vec::new();
    let mut applied = Vec::new();
    for (at, (band, cell)) in sorted.into_iter().enumerate() {
        let Ok(number) = u16::try_from(at) else { break };
        params.push(Param { name: format!("cell{at}"), ty: Type::Bit(32) });
        args.push(ir::Constant::bit(32, (*cell).into()));
        let param = Expr::Param(number);
        body.push(Stmt::Meter(LValue::Var(v.color), cells, param.clone(), None));
        let exceeded = var(v.color).equals(bit(2, 2));
        body.push(when(exceeded, vec![set(v.chosen, bit(32, at as u64 + 1))]));
        let mut effect = vec![Stmt::Count(layout.band_counts, param)];
        match &band.kind {
            BandKind::DscpRemark(levels) => effect.extend(remark(layout, *levels)),
            BandKind::Drop | BandKind::Other(..) => effect.push(Stmt::Drop(layout.reasons.meter)),
        }
        applied.push(when(var(v.chosen).equals(bit(32, at as u64 + 1)), effect));
    }
    body.extend(applied);
    Body { action: ir::Action { name: "meter".to_owned(), params, body }, args }
}

/// Raises the drop precedence of assured forwarding (RFC 2597): the middle bits of its code points.
fn remark(layout: &'static Layout, levels: u8) -> Vec<Stmt> {
    use crate::program::field_values;
    let dscp = || field_values(&layout.keys, [FieldId::IpDscp]).pop().unwrap_or_else(|| bit(6, 0));
    let Some(store) = layout.stores.get(&FieldId::IpDscp) else { return vec![] };
    let precedence = || dscp().slice(2, 1);
    let assured = both(precedence().op(BinOp::Ne, bit(2, 0)), dscp().slice(0, 0).equals(bit(1, 0)));
    let raised = precedence().op(BinOp::SatAdd, bit(2, u64::from(levels.min(3))));
    let new =
        crate::program::terms::concat(crate::program::terms::concat(dscp().slice(5, 3), raised), bit(1, 0));
    vec![when(assured, vec![Stmt::Do(*store, vec![new, bit(6, 0x3f)])])]
}
