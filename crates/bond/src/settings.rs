//! Settings of bonds and their members.

use packet::MacAddr;

use crate::Millis;

/// How a bond chooses the member that sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// One member carries everything.
    #[default]
    ActiveBackup,
    /// By source address and VLAN; the peer need not know of the bond.
    BalanceSlb,
    /// By flow; the peer has to agree by LACP.
    BalanceTcp,
}

impl Mode {
    /// Returns its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::ActiveBackup => "active-backup",
            Self::BalanceSlb => "balance-slb",
            Self::BalanceTcp => "balance-tcp",
        }
    }

    /// Returns the mode of a name.
    pub fn of_name(name: &str) -> Option<Self> {
        [Self::ActiveBackup, Self::BalanceSlb, Self::BalanceTcp].into_iter().find(|mode| mode.name() == name)
    }
}

/// Settings of LACP for all members.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LacpSettings {
    /// Whether it starts to negotiate, or waits for the peer.
    pub active: bool,
    /// Whether the peer is asked to send every second instead of every 30 seconds.
    pub fast: bool,
    /// The system's address.
    pub system: MacAddr,
    /// The system's priority; smaller numbers come first.
    pub priority: u16,
    /// Whether a member whose peer does not speak LACP may still be used, one member at a time.
    pub fallback: bool,
}

/// Settings of a bond.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Settings {
    /// How the member that sends is chosen.
    pub mode: Mode,
    /// Whether it is a bond: a port of one interface may speak LACP without being one.
    pub is_bond: bool,
    /// Time that a link has to be up before its member is used.
    pub updelay: Millis,
    /// Time that a link has to be down before its member is no longer used.
    pub downdelay: Millis,
    /// Interval at which load is moved between members; 0: never.
    pub rebalance_interval: Millis,
    /// Basis of hashes.
    pub basis: u32,
    /// Member that carries everything while it works.
    pub primary: Option<String>,
    /// Whether group packets are admitted at every member, with [`Mode::BalanceSlb`].
    pub all_members_active: bool,
    /// Whether the operator asked for a datapath action that needs no flow for each bucket: the way this switch works
    /// anyway.
    pub lb_output: bool,
    /// LACP, if it is used.
    pub lacp: Option<LacpSettings>,
    /// Whether [`LacpSettings::fallback`] was asked for, with LACP or without.
    pub fallback: bool,
    /// Address of the member that was active when the state was written last.
    pub last_active: Option<MacAddr>,
}

/// Settings of a member.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct MemberSettings {
    /// Its name.
    pub name: String,
    /// Number in LACPDUs.
    pub port_id: u16,
    /// Priority in LACPDUs; smaller numbers come first.
    pub port_priority: u16,
    /// Aggregation key; 0: the number of the first member.
    pub key: u16,
}
