//! Feature bits that back-end and front-end can negotiate.
//!
//! Device bits follow virtio 1.2 §5.1.3 and §6, protocol bits QEMU's vhost-user specification. Only offered bits can be
//! negotiated.

/// Feature bits of the virtio device.
pub mod device {
    /// The driver may offload checksums to the device.
    pub const CSUM: u64 = 1 << 0;
    /// The device may offload checksums to the driver.
    pub const GUEST_CSUM: u64 = 1 << 1;
    /// The front-end gives the driver an MTU.
    pub const MTU: u64 = 1 << 3;
    /// The driver accepts large TCP packets over IPv4.
    pub const GUEST_TSO4: u64 = 1 << 7;
    /// The driver accepts large TCP packets over IPv6.
    pub const GUEST_TSO6: u64 = 1 << 8;
    /// The driver accepts large TCP packets with CWR set.
    pub const GUEST_ECN: u64 = 1 << 9;
    /// The device accepts large TCP packets over IPv4.
    pub const HOST_TSO4: u64 = 1 << 11;
    /// The device accepts large TCP packets over IPv6.
    pub const HOST_TSO6: u64 = 1 << 12;
    /// The device accepts large TCP packets with CWR set.
    pub const HOST_ECN: u64 = 1 << 13;
    /// A packet to the driver may take several buffers.
    pub const MRG_RXBUF: u64 = 1 << 15;
    /// A control queue exists; the front-end serves it.
    pub const CTRL_VQ: u64 = 1 << 17;
    /// Receive modes are set through the control queue.
    pub const CTRL_RX: u64 = 1 << 18;
    /// The driver announces itself on request.
    pub const GUEST_ANNOUNCE: u64 = 1 << 21;
    /// Several queue pairs.
    pub const MQ: u64 = 1 << 22;
    /// Writes to guest memory are logged (vhost-user's own meaning of this bit): a live migration is in progress.
    pub const LOG_ALL: u64 = 1 << 26;
    /// Descriptors may divide header and packet anywhere (legacy drivers; always so in virtio 1).
    pub const ANY_LAYOUT: u64 = 1 << 27;
    /// Descriptors may refer to tables of descriptors.
    pub const INDIRECT_DESC: u64 = 1 << 28;
    /// Notifications are requested by index.
    pub const EVENT_IDX: u64 = 1 << 29;
    /// The front-end supports protocol features (vhost-user's own meaning of this bit).
    pub const PROTOCOL_FEATURES: u64 = 1 << 30;
    /// virtio 1, not a legacy device.
    pub const VERSION_1: u64 = 1 << 32;
    /// Packed rings.
    pub const RING_PACKED: u64 = 1 << 34;
    /// Chains are used in the order in which they were made available.
    pub const IN_ORDER: u64 = 1 << 35;
    /// The driver accepts large UDP packets over IPv4.
    pub const GUEST_USO4: u64 = 1 << 54;
    /// The driver accepts large UDP packets over IPv6.
    pub const GUEST_USO6: u64 = 1 << 55;
    /// The device accepts large UDP packets.
    pub const HOST_USO: u64 = 1 << 56;

    /// Bits that this back-end offers.
    pub const OFFERED: u64 = CSUM
        | GUEST_CSUM
        | MTU
        | GUEST_TSO4
        | GUEST_TSO6
        | GUEST_ECN
        | HOST_TSO4
        | HOST_TSO6
        | HOST_ECN
        | MRG_RXBUF
        | CTRL_VQ
        | CTRL_RX
        | GUEST_ANNOUNCE
        | MQ
        | LOG_ALL
        | ANY_LAYOUT
        | INDIRECT_DESC
        | EVENT_IDX
        | PROTOCOL_FEATURES
        | VERSION_1
        | RING_PACKED
        | IN_ORDER
        | GUEST_USO4
        | GUEST_USO6
        | HOST_USO;

    /// Names of the bits that `port show` prints.
    pub const NAMES: &[(u64, &str)] = &[
        (VERSION_1, "version-1"),
        (RING_PACKED, "packed"),
        (IN_ORDER, "in-order"),
        (MRG_RXBUF, "mergeable"),
        (EVENT_IDX, "event-idx"),
        (INDIRECT_DESC, "indirect"),
        (MQ, "mq"),
        (CSUM, "csum"),
        (HOST_TSO4, "tso4"),
        (HOST_TSO6, "tso6"),
        (HOST_USO, "uso"),
        (GUEST_CSUM, "guest-csum"),
        (GUEST_TSO4, "guest-tso4"),
        (GUEST_TSO6, "guest-tso6"),
        (GUEST_USO4, "guest-uso4"),
        (GUEST_USO6, "guest-uso6"),
    ];
}

/// Feature bits of the protocol.
pub mod protocol {
    /// Several queue pairs.
    pub const MQ: u64 = 1 << 0;
    /// A migration's log is in shared memory.
    pub const LOG_SHMFD: u64 = 1 << 1;
    /// The back-end announces a migrated guest.
    pub const RARP: u64 = 1 << 2;
    /// Any request can ask for an answer.
    pub const REPLY_ACK: u64 = 1 << 3;
    /// The back-end receives the MTU.
    pub const NET_MTU: u64 = 1 << 4;
    /// Memory regions are added and removed one by one.
    pub const CONFIGURE_MEM_SLOTS: u64 = 1 << 15;
    /// The back-end receives the device status.
    pub const STATUS: u64 = 1 << 16;

    /// Bits that this back-end offers.
    pub const OFFERED: u64 = MQ | LOG_SHMFD | RARP | REPLY_ACK | NET_MTU | CONFIGURE_MEM_SLOTS | STATUS;
}

/// Formats a set of bits, for messages about unknown bits.
pub(crate) fn bits(set: u64) -> String {
    let bits: Vec<_> = (0..64).filter(|bit| set & (1 << bit) != 0).map(|bit: u32| bit.to_string()).collect();
    bits.join(", ")
}
