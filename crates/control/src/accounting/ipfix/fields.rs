//! Information elements of IPFIX's records: numbers and lengths of IANA's registry, and how a record fills them.

use metering::Way;

use super::{MAX_NAME, MAX_VIRTUAL_ID, Record};

/// Length of a field whose length is in the record (RFC 7011, section 7).
pub(super) const VARIABLE: u16 = u16::MAX;

/// Bit of an element's number that says that an enterprise's number follows (RFC 7011, section 3.2).
const ENTERPRISE: u16 = 0x8000;
/// The enterprise whose element Open vSwitch uses for virtual observation ids: VMware.
const VMWARE: u32 = 6876;

macro_rules! fields {
    ($($(#[$doc:meta])* $name:ident = $number:literal, $length:expr;)*) => {
        /// A field of a record, by the name of its information element.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(super) enum Field {
            $($(#[$doc])* $name,)*
        }

        impl Field {
            /// Number of the element, without the enterprise's bit, and length of the field.
            fn numbers(self) -> (u16, u16) {
                match self {
                    $(Field::$name => ($number, $length),)*
                }
            }
        }
    };
}

fields! {
    OctetDeltaCount = 1, 8;
    PacketDeltaCount = 2, 8;
    ProtocolIdentifier = 4, 1;
    IpClassOfService = 5, 1;
    TcpControlBits = 6, 2;
    SourceTransportPort = 7, 2;
    SourceIpv4Address = 8, 4;
    IngressInterface = 10, 4;
    DestinationTransportPort = 11, 2;
    DestinationIpv4Address = 12, 4;
    EgressInterface = 14, 4;
    MinimumIpTotalLength = 25, 8;
    MaximumIpTotalLength = 26, 8;
    SourceIpv6Address = 27, 16;
    DestinationIpv6Address = 28, 16;
    SourceMacAddress = 56, 6;
    IcmpTypeCodeIpv4 = 32, 2;
    VlanId = 58, 2;
    IpVersion = 60, 1;
    FlowDirection = 61, 1;
    DestinationMacAddress = 80, 6;
    /// The name of the interface whose number precedes it.
    IngressName = 82, VARIABLE;
    EgressName = 82, VARIABLE;
    DroppedOctetDeltaCount = 132, 8;
    DroppedPacketDeltaCount = 133, 8;
    FlowEndReason = 136, 1;
    ObservationPointId = 138, 4;
    IcmpTypeCodeIpv6 = 139, 2;
    ExportingProcessId = 144, 4;
    FlowStartMilliseconds = 152, 8;
    FlowEndMilliseconds = 153, 8;
    NotSentPacketTotalCount = 167, 8;
    NotSentOctetTotalCount = 168, 8;
    IcmpTypeIpv4 = 176, 1;
    IcmpCodeIpv4 = 177, 1;
    IcmpTypeIpv6 = 178, 1;
    IcmpCodeIpv6 = 179, 1;
    IpDiffServCodePoint = 195, 1;
    EthernetHeaderLength = 240, 1;
    Dot1qVlanId = 243, 2;
    Dot1qPriority = 244, 1;
    EthernetType = 256, 2;
    Layer2OctetDeltaCount = 352, 8;
    /// Open vSwitch's element of VMware.
    VirtualObservationId = 890, VARIABLE;
}

pub(super) const COMMON: &[Field] = &[
    Field::ObservationPointId,
    Field::FlowDirection,
    Field::SourceMacAddress,
    Field::DestinationMacAddress,
    Field::EthernetType,
    Field::EthernetHeaderLength,
    Field::IngressInterface,
    Field::IngressName,
];
pub(super) const EGRESS: &[Field] = &[Field::EgressInterface, Field::EgressName];
pub(super) const TAG: &[Field] = &[Field::VlanId, Field::Dot1qVlanId, Field::Dot1qPriority];
pub(super) const IP: &[Field] =
    &[Field::IpVersion, Field::ProtocolIdentifier, Field::IpDiffServCodePoint, Field::IpClassOfService];
pub(super) const IPV4: &[Field] = &[Field::SourceIpv4Address, Field::DestinationIpv4Address];
pub(super) const IPV6: &[Field] = &[Field::SourceIpv6Address, Field::DestinationIpv6Address];
pub(super) const PORTS: &[Field] =
    &[Field::SourceTransportPort, Field::DestinationTransportPort, Field::TcpControlBits];
/// Collectors know type and code as one element or as two.
pub(super) const ICMP: &[Field] = &[Field::IcmpTypeIpv4, Field::IcmpCodeIpv4, Field::IcmpTypeCodeIpv4];
pub(super) const ICMPV6: &[Field] = &[Field::IcmpTypeIpv6, Field::IcmpCodeIpv6, Field::IcmpTypeCodeIpv6];
pub(super) const VIRTUAL_ID: &[Field] = &[Field::VirtualObservationId];
pub(super) const COUNTS: &[Field] = &[
    Field::FlowStartMilliseconds,
    Field::FlowEndMilliseconds,
    Field::PacketDeltaCount,
    Field::DroppedPacketDeltaCount,
    Field::Layer2OctetDeltaCount,
    Field::FlowEndReason,
];
pub(super) const IP_COUNTS: &[Field] = &[
    Field::OctetDeltaCount,
    Field::DroppedOctetDeltaCount,
    Field::MinimumIpTotalLength,
    Field::MaximumIpTotalLength,
];
/// Statistics of the exporting process (RFC 7011, section 4.3); the first field is the scope.
pub(super) const STATISTICS: &[Field] =
    &[Field::ExportingProcessId, Field::NotSentPacketTotalCount, Field::NotSentOctetTotalCount];

impl Field {
    /// Appends its specifier to a template (RFC 7011, section 3.2).
    pub(super) fn specify(self, to: &mut Vec<u8>) {
        let (number, length) = self.numbers();
        let is_enterprise = self == Field::VirtualObservationId;
        let number = if is_enterprise { number | ENTERPRISE } else { number };
        to.extend(number.to_be_bytes());
        to.extend(length.to_be_bytes());
        if is_enterprise {
            to.extend(VMWARE.to_be_bytes());
        }
    }

    /// Appends its value to a record.
    pub(super) fn write(self, to: &mut Vec<u8>, record: &Record<'_>, tagged: bool, virtual_id: &str) {
        let Record { key, counts, .. } = record;
        let tci = key.tci.unwrap_or(0);
        let [icmp_type, icmp_code] = key.ports[1].to_be_bytes();
        let milliseconds = |at: u64| at / 1_000_000;
        // Numbers, which are cut to the length of the field.
        let number: u64 = match self {
            Field::SourceMacAddress => return to.extend(key.mac_source),
            Field::DestinationMacAddress => return to.extend(key.mac_destination),
            Field::SourceIpv4Address => return to.extend(&key.source[..4]),
            Field::DestinationIpv4Address => return to.extend(&key.destination[..4]),
            Field::SourceIpv6Address => return to.extend(key.source),
            Field::DestinationIpv6Address => return to.extend(key.destination),
            Field::IngressName => return string(to, &record.input.name, MAX_NAME),
            Field::EgressName => return string(to, &record.output.name, MAX_NAME),
            Field::VirtualObservationId => return string(to, virtual_id, MAX_VIRTUAL_ID),
            Field::OctetDeltaCount => counts.octets,
            Field::PacketDeltaCount => counts.packets,
            Field::ProtocolIdentifier => key.protocol.into(),
            Field::IpClassOfService => key.tos.into(),
            Field::IpDiffServCodePoint => (key.tos >> 2).into(),
            Field::TcpControlBits => counts.tcp_flags.into(),
            Field::SourceTransportPort => key.ports[0].into(),
            Field::DestinationTransportPort => key.ports[1].into(),
            Field::IngressInterface => record.input.index.into(),
            Field::EgressInterface => record.output.index.into(),
            Field::MinimumIpTotalLength => counts.shortest.into(),
            Field::MaximumIpTotalLength => counts.longest.into(),
            Field::VlanId | Field::Dot1qVlanId => (tci & 0xfff).into(),
            Field::Dot1qPriority => (tci >> 13).into(),
            Field::IpVersion => key.ip_version.into(),
            Field::FlowDirection => (key.way == Way::Out).into(),
            Field::DroppedOctetDeltaCount => counts.dropped_octets,
            Field::DroppedPacketDeltaCount => counts.dropped_packets,
            Field::FlowEndReason => record.end as u64,
            Field::ObservationPointId => record.point.into(),
            Field::FlowStartMilliseconds => milliseconds(counts.first),
            Field::FlowEndMilliseconds => milliseconds(counts.last),
            Field::IcmpTypeIpv4 | Field::IcmpTypeIpv6 => icmp_type.into(),
            Field::IcmpCodeIpv4 | Field::IcmpCodeIpv6 => icmp_code.into(),
            Field::IcmpTypeCodeIpv4 | Field::IcmpTypeCodeIpv6 => key.ports[1].into(),
            Field::EthernetHeaderLength => {
                if tagged {
                    18
                } else {
                    14
                }
            }
            Field::EthernetType => key.ethertype.into(),
            Field::Layer2OctetDeltaCount => counts.bytes,
            // Fields of statistics, which are no flow's.
            Field::ExportingProcessId | Field::NotSentPacketTotalCount | Field::NotSentOctetTotalCount => 0,
        };
        let (_, length) = self.numbers();
        let bytes = number.to_be_bytes();
        to.extend(bytes.get(bytes.len().saturating_sub(length.into())..).unwrap_or_default());
    }
}

/// Appends a string of variable length; one of less than 255 bytes has its length in one byte (RFC 7011, section 7).
fn string(to: &mut Vec<u8>, text: &str, most: usize) {
    let bytes = text.as_bytes();
    let bytes = bytes.get(..most.min(MAX_VIRTUAL_ID)).unwrap_or(bytes);
    to.push(bytes.len() as u8);
    to.extend(bytes);
}
