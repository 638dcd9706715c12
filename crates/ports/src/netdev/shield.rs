//! The shield of an interface: it keeps received packets from the host's own stack, and other switches from the
//! interface.
//!
//! It is an nftables table of family netdev with one chain at the interface's ingress hook, with the policy to drop. The
//! chain is empty, or with a host port lets answers to DHCP clients pass. The hook lies behind packet sockets for all
//! protocols, tc filters and XDP, and in front of packet sockets for one protocol, bridges, VLAN interfaces and the IP
//! stack. The table is named after the interface's index, so a namespace holds at most one for an interface.
//!
//! A shield is first claimed, by the table, and later raised, by its chain.
//!
//! Invariants: the kernel removes the table when its netlink socket closes, so however the process ends, the host gets
//! its interface back, and nobody else can remove the table before (`NFT_TABLE_F_OWNER`, Linux 5.12). The tables of a
//! namespace have one socket, because closing one can take the kernel 20 ms. A table that the kernel did not delete in
//! time is deleted before the next transaction, or with the socket once there is no shield.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::io::Errno;
use rustix::net::netlink;

use super::dhcp_rule;
use crate::OpenError;
use crate::netlink::{
    ACK, APPEND, CREATE, CREATE_NEW, ERROR, Messages, NESTED, REQUEST, ROOM, messages, receive, socket, text,
    text_of,
};

/// `NFNL_SUBSYS_NFTABLES`, the upper byte of its messages' kinds.
const NFTABLES: u16 = 10;
const NEW_TABLE: u16 = NFTABLES << 8;
const GET_TABLE: u16 = NFTABLES << 8 | 1;
const DELETE_TABLE: u16 = NFTABLES << 8 | 2;
const NEW_CHAIN: u16 = NFTABLES << 8 | 3;
const DELETE_CHAIN: u16 = NFTABLES << 8 | 5;
const NEW_RULE: u16 = NFTABLES << 8 | 6;
/// `NFNL_MSG_BATCH_BEGIN` and `NFNL_MSG_BATCH_END`.
const BATCH: [u16; 2] = [16, 17];

const NFPROTO_UNSPEC: u8 = 0;
const NFPROTO_NETDEV: u8 = 5;
const NF_NETDEV_INGRESS: u32 = 0;
const NF_DROP: u32 = 0;
const NFT_TABLE_F_OWNER: u32 = 2;
/// Behind the chains of others, which keep working; packets that they accept are dropped all the same.
const PRIORITY: i32 = i32::MAX;

const TABLE_NAME: u16 = 1;
const TABLE_FLAGS: u16 = 2;
const TABLE_USERDATA: u16 = 6;
const CHAIN_TABLE: u16 = 1;
const CHAIN_NAME: u16 = 3;
const CHAIN_HOOK: u16 = 4;
const CHAIN_POLICY: u16 = 5;
const CHAIN_TYPE: u16 = 7;
const RULE_TABLE: u16 = 1;
const RULE_CHAIN: u16 = 2;
const RULE_EXPRESSIONS: u16 = 4;
const HOOK_NUMBER: u16 = 1;
const HOOK_PRIORITY: u16 = 2;
const HOOK_DEVICE: u16 = 3;

/// Longest comment that `nft list` shows, with its zero (`NFTNL_UDATA_COMMENT_MAXLEN`).
const MAX_COMMENT: usize = 128;

/// The shields of a namespace.
#[derive(Debug, Default)]
pub(super) struct Shields(Mutex<Tables>);

#[derive(Debug, Default)]
struct Tables {
    /// The socket that owns the tables, once there was a shield.
    owner: Option<Owner>,
    /// Number of shields.
    shields: usize,
    /// Tables to delete.
    leftover: Vec<String>,
}

#[derive(Debug)]
struct Owner {
    socket: OwnedFd,
    /// Sequence number of the last message: a late answer must not be taken for another's.
    sequence: u32,
}

/// The shield of one interface.
#[derive(Debug)]
pub(super) struct Shield {
    shields: Arc<Shields>,
    table: String,
    /// Number of the chain and its device, once the shield is raised.
    chain: Option<(u32, String)>,
    /// Chains made so far: each has a name of its own.
    chains: u32,
}

impl Shields {
    fn lock(&self) -> MutexGuard<'_, Tables> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Tables {
    /// Calls `task` with the socket, which is opened if it is missing, in the calling thread's namespace.
    fn with<T>(&mut self, task: impl FnOnce(&mut Owner) -> Result<T, Errno>) -> Result<T, Errno> {
        let owner = match &mut self.owner {
            Some(owner) => owner,
            none => none.insert(Owner { socket: socket(Some(netlink::NETFILTER), 0)?, sequence: 0 }),
        };
        self.leftover.retain(|table| owner.delete(table).is_err());
        task(owner)
    }

    /// Deletes a table, now or later.
    fn delete(&mut self, table: &str) {
        if let Err(error) = self.owner.as_mut().map_or(Ok(()), |owner| owner.delete(table)) {
            tracing::warn!(table, %error, "cannot remove the nftables table of an interface yet");
            self.leftover.push(table.to_owned());
        }
        if self.shields == 0 && !self.leftover.is_empty() {
            // The kernel removes them with the socket.
            (self.owner, self.leftover) = (None, Vec::new());
        }
    }
}

impl Shield {
    /// Claims interface `name` with this index of the calling thread's namespace, to which `shields` belong, for
    /// `owner`: the port and its bridge. The host's own stack goes on to receive its packets.
    pub(super) fn claim(
        shields: &Arc<Shields>,
        name: &str,
        index: u32,
        owner: &str,
    ) -> Result<Self, OpenError> {
        let table = format!("mswitch-if{index}");
        let comment = comment(owner);
        let mut tables = shields.lock();
        let claimed = tables.with(|owner| {
            let mut batch = owner.begin();
            owner
                .step(&mut batch, NEW_TABLE, CREATE_NEW)
                .attribute(TABLE_NAME, &text(&table))
                .attribute(TABLE_FLAGS, &NFT_TABLE_F_OWNER.to_be_bytes())
                .attribute(TABLE_USERDATA, &comment);
            owner.execute(batch, 1)
        });
        match claimed {
            Ok(()) => {
                tables.shields += 1;
                tables.leftover.retain(|leftover| *leftover != table);
                Ok(Self { shields: shields.clone(), table, chain: None, chains: 0 })
            }
            // The table belongs to a port, or the caller has no capability.
            Err(error @ (Errno::PERM | Errno::EXIST)) => {
                let holder = tables.with(|owner| Ok(owner.holder(&text(&table)))).ok().flatten();
                Err(holder.map_or_else(|| refused(name, error), |holder| OpenError(held(name, &holder))))
            }
            Err(error) => {
                // A late answer may have been a good one.
                tables.delete(&table);
                Err(refused(name, error))
            }
        }
    }

    /// Keeps the packets of the claimed interface, which is called `name` now, from the host's own stack, except, if
    /// `passes_dhcp`, answers to DHCP clients. The kernel forgets a chain whose interface is renamed (from Linux 6.16),
    /// so a new name needs another one.
    pub(super) fn raise(&mut self, name: &str, passes_dhcp: bool) -> Result<(), OpenError> {
        if self.chain.as_ref().is_some_and(|(_, device)| device == name) {
            return Ok(());
        }
        let (table, number) = (&self.table, self.chains);
        let former = self.chain.as_ref().map(|(number, _)| *number);
        self.chains += 1;
        let raised = self.shields.lock().with(|owner| {
            let mut batch = owner.begin();
            owner.add_chain(&mut batch, table, number, name);
            let rules = if passes_dhcp { dhcp_rule::expressions().to_vec() } else { Vec::new() };
            rules.iter().for_each(|rule| owner.add_rule(&mut batch, table, number, rule));
            owner.execute(batch, 1 + rules.len() as u32)?;
            if let Some(former) = former {
                let mut batch = owner.begin();
                owner
                    .step(&mut batch, DELETE_CHAIN, 0)
                    .attribute(CHAIN_TABLE, &text(table))
                    .attribute(CHAIN_NAME, &text(&chain_name(former)));
                // Another chain that remains does no harm.
                let _ = owner.execute(batch, 1);
            }
            Ok(())
        });
        raised.map_err(|error| refused(name, error))?;
        self.chain = Some((number, name.to_owned()));
        Ok(())
    }

    /// Returns the name of the table, for users, if the shield is raised.
    pub(super) fn table(&self) -> Option<&str> {
        self.chain.as_ref().map(|_| self.table.as_str())
    }
}

impl Drop for Shield {
    fn drop(&mut self) {
        let mut tables = self.shields.lock();
        tables.shields -= 1;
        tables.delete(&self.table);
    }
}

impl Owner {
    /// Begins a transaction.
    fn begin(&mut self) -> Messages {
        let mut batch = Messages::default();
        self.sequence = self.sequence.wrapping_add(1);
        batch.begin(BATCH[0], REQUEST, self.sequence, &family(NFPROTO_UNSPEC, NFTABLES));
        batch
    }

    /// Adds a step to a transaction.
    fn step<'m>(&mut self, batch: &'m mut Messages, kind: u16, flags: u16) -> &'m mut Messages {
        self.sequence = self.sequence.wrapping_add(1);
        batch.begin(kind, REQUEST | ACK | flags, self.sequence, &family(NFPROTO_NETDEV, 0))
    }

    fn add_chain(&mut self, batch: &mut Messages, table: &str, number: u32, device: &str) {
        self.step(batch, NEW_CHAIN, CREATE_NEW)
            .attribute(CHAIN_TABLE, &text(table))
            .attribute(CHAIN_NAME, &text(&chain_name(number)))
            .nested(
                CHAIN_HOOK,
                &[
                    (HOOK_NUMBER, &NF_NETDEV_INGRESS.to_be_bytes()),
                    (HOOK_PRIORITY, &PRIORITY.to_be_bytes()),
                    (HOOK_DEVICE, &text(device)),
                ],
            )
            .attribute(CHAIN_POLICY, &NF_DROP.to_be_bytes())
            .attribute(CHAIN_TYPE, &text("filter"));
    }

    /// Appends a rule to a chain.
    fn add_rule(&mut self, batch: &mut Messages, table: &str, number: u32, expressions: &[u8]) {
        self.step(batch, NEW_RULE, CREATE | APPEND)
            .attribute(RULE_TABLE, &text(table))
            .attribute(RULE_CHAIN, &text(&chain_name(number)))
            .attribute(RULE_EXPRESSIONS | NESTED, expressions);
    }

    /// Deletes a table. One that does not exist is no failure.
    fn delete(&mut self, table: &str) -> Result<(), Errno> {
        let mut batch = self.begin();
        self.step(&mut batch, DELETE_TABLE, 0).attribute(TABLE_NAME, &text(table));
        match self.execute(batch, 1) {
            Err(Errno::NOENT) => Ok(()),
            done => done,
        }
    }

    /// Executes a transaction with this many steps. Returns the first error.
    fn execute(&mut self, mut batch: Messages, steps: u32) -> Result<(), Errno> {
        let last = self.sequence;
        // The answer to the batch as a whole, if the kernel refuses it, or else those to its steps.
        let first = last.wrapping_sub(steps);
        self.sequence = last.wrapping_add(1);
        batch.begin(BATCH[1], REQUEST, self.sequence, &family(NFPROTO_UNSPEC, NFTABLES));
        batch.send(&self.socket)?;
        let (mut room, mut answers, mut failed) = (vec![0; ROOM], 0, None);
        while answers < steps {
            for message in messages(receive(&self.socket, &mut room)?) {
                let number = message.sequence.wrapping_sub(first);
                let Some(code) = message.code().filter(|_| number <= steps) else { continue };
                answers = if number == 0 { steps } else { answers + 1 };
                if code != 0 {
                    failed = failed.or(Some(Errno::from_raw_os_error(-code)));
                }
            }
        }
        failed.map_or(Ok(()), Err)
    }

    /// Returns the owner of an existing table.
    fn holder(&mut self, table: &[u8]) -> Option<String> {
        let mut request = Messages::default();
        self.step(&mut request, GET_TABLE, 0).attribute(TABLE_NAME, table);
        request.send(&self.socket).ok()?;
        let (mut room, mut holder) = (vec![0; ROOM], None);
        loop {
            let answers = messages(receive(&self.socket, &mut room).ok()?);
            for message in answers.filter(|message| message.sequence == self.sequence) {
                if message.kind == ERROR {
                    return holder;
                }
                let comment = message.attributes(4).find(|(kind, _)| *kind == TABLE_USERDATA);
                holder = Some(match comment {
                    Some((_, value)) => text_of(value.get(2..).unwrap_or_default()),
                    None => format!("the owner of nftables table `netdev {}`", text_of(table)),
                });
            }
        }
    }
}

/// Explains why the kernel refused a table or chain.
fn refused(name: &str, error: Errno) -> OpenError {
    OpenError(match error {
        Errno::PERM => format!("interface `{name}`: attaching an interface needs CAP_NET_ADMIN"),
        Errno::NOENT => format!("interface `{name}` vanished while it was attached"),
        error => format!(
            "interface `{name}`: its packets cannot be kept from the host's own stack: {error}; Linux 5.12 or later \
             with nf_tables and CONFIG_NF_TABLES_NETDEV is needed"
        ),
    })
}

/// Describes an interface that has a holder already.
fn held(name: &str, holder: &str) -> String {
    match holder.strip_prefix(&format!("mswitch, process {}, ", std::process::id())) {
        Some(port) => format!("interface `{name}` is attached to this switch already: {port}"),
        None => format!("interface `{name}` is in use by {holder}; remove it there, or stop that process"),
    }
}

fn chain_name(number: u32) -> String {
    format!("ingress{number}")
}

/// The fixed part of nfnetlink's messages.
fn family(family: u8, resource: u16) -> [u8; 4] {
    let [high, low] = resource.to_be_bytes();
    [family, 0, high, low]
}

/// The table's user data: a comment as `nft list` shows it (type 0, length, text with its zero).
fn comment(owner: &str) -> Vec<u8> {
    let mut comment = text(&format!("mswitch, process {}, {owner}", std::process::id()));
    if comment.len() > MAX_COMMENT {
        comment.truncate(MAX_COMMENT - 1);
        comment.push(0);
    }
    [&[0, comment.len() as u8][..], &comment].concat()
}
