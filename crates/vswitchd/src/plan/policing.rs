//! Ingress policing: the columns `ingress_policing_*` of an interface as the limit of its port.
//!
//! A port has one limit. If an interface has one of bits and one of packets, that of bits is in effect.

use fabric::protection::{Limit, Unit};
use ovsdb::vswitch::Interface;

/// Burst in effect if the column is 0: 8000 kbit.
const DEFAULT_BYTES: u64 = 1_000_000;
/// Burst in effect if the column is 0: 16 kpkts.
const DEFAULT_PACKETS: u64 = 16_000;

/// Returns the limit, and a warning if a column has no effect.
pub(super) fn limit(interface: &Interface) -> (Option<Limit>, Option<String>) {
    let scaled = |column: i64, unit: u64| u64::try_from(column).unwrap_or_default().saturating_mul(unit);
    let limit = |unit, rate: u64, burst: u64, default| {
        let burst = Some(if burst == 0 { default } else { burst });
        (rate > 0).then_some(Limit { unit, rate, burst })
    };
    let Interface { ingress_policing_rate: rate, ingress_policing_burst: burst, .. } = interface;
    // Of kbit/s and kbit: 1000 bits are 125 bytes.
    let bits = limit(Unit::Bits, scaled(*rate, 1000), scaled(*burst, 125), DEFAULT_BYTES);
    let Interface { ingress_policing_kpkts_rate: rate, ingress_policing_kpkts_burst: burst, .. } = interface;
    let packets = limit(Unit::Packets, scaled(*rate, 1000), scaled(*burst, 1000), DEFAULT_PACKETS);
    let warning = (bits.is_some() && packets.is_some()).then(|| {
        format!(
            "interface {}: ingress_policing_kpkts_rate has no effect beside ingress_policing_rate",
            interface.name
        )
    });
    (bits.or(packets), warning)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interface(columns: [i64; 4]) -> Interface {
        let [rate, burst, kpkts_rate, kpkts_burst] = columns;
        Interface {
            name: "a".into(),
            ingress_policing_rate: rate,
            ingress_policing_burst: burst,
            ingress_policing_kpkts_rate: kpkts_rate,
            ingress_policing_kpkts_burst: kpkts_burst,
            ..Interface::default()
        }
    }

    #[test]
    fn columns_become_a_limit() {
        let limit = |columns| super::limit(&interface(columns));
        let some = |unit, rate, burst| Some(Limit { unit, rate, burst: Some(burst) });
        assert_eq!(limit([0; 4]), (None, None));
        assert_eq!(limit([0, 80, 0, 80]), (None, None), "a burst alone is no limit");
        assert_eq!(limit([1000, 80, 0, 0]), (some(Unit::Bits, 1_000_000, 10_000), None));
        assert_eq!(limit([1000, 0, 0, 0]).0, some(Unit::Bits, 1_000_000, 1_000_000));
        assert_eq!(limit([0, 0, 2, 3]).0, some(Unit::Packets, 2000, 3000));
        assert_eq!(limit([0, 0, 2, 0]).0, some(Unit::Packets, 2000, 16_000));
        let (both, warning) = limit([1, 1, 1, 1]);
        assert_eq!(both, some(Unit::Bits, 1000, 125));
        assert!(warning.unwrap().starts_with("interface a: ingress_policing_kpkts_rate has no effect"));
        assert_eq!(limit([i64::MAX, i64::MAX, 0, 0]).0, some(Unit::Bits, u64::MAX, u64::MAX));
    }
}
