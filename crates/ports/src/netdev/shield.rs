//! The shield of an interface: it keeps received packets from the host's own stack, and other switches from the
//! interface.
//!
//! It is an nftables table of family netdev with one chain at the interface's ingress hook, empty, with the policy to
//! drop. The hook lies behind packet sockets, tc filters and XDP, and in front of bridges, VLAN interfaces and the IP
//! stack. The table is named after the interface's index, so a namespace holds at most one for an interface.
//!
//! Invariant: the kernel removes the table when its netlink socket closes, so however the process ends, the host gets
//! its interface back, and nobody else can remove the table before (`NFT_TABLE_F_OWNER`, Linux 5.12).

use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::netlink;

use crate::OpenError;
use crate::netlink::{
    ACK, CREATE_NEW, ERROR, Messages, REQUEST, ROOM, messages, receive, socket, text, text_of,
};

/// `NFNL_SUBSYS_NFTABLES`, the upper byte of its messages' kinds.
const NFTABLES: u16 = 10;
const NEW_TABLE: u16 = NFTABLES << 8;
const GET_TABLE: u16 = NFTABLES << 8 | 1;
const DELETE_TABLE: u16 = NFTABLES << 8 | 2;
const NEW_CHAIN: u16 = NFTABLES << 8 | 3;
const DELETE_CHAIN: u16 = NFTABLES << 8 | 5;
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
const HOOK_NUMBER: u16 = 1;
const HOOK_PRIORITY: u16 = 2;
const HOOK_DEVICE: u16 = 3;

/// Longest comment that `nft list` shows, with its zero (`NFTNL_UDATA_COMMENT_MAXLEN`).
const MAX_COMMENT: usize = 128;

/// The shield of one interface.
#[derive(Debug)]
pub(super) struct Shield {
    socket: OwnedFd,
    table: String,
    /// Chains made so far: each has a name of its own. 0 if the table is another's.
    chains: u32,
}

impl Shield {
    /// Shields interface `name` with this index of the calling thread's namespace for `owner`: the port and its bridge.
    pub(super) fn raise(name: &str, index: u32, owner: &str) -> Result<Self, OpenError> {
        let unsupported = |error: Errno| {
            OpenError(format!(
                "interface `{name}`: its packets cannot be kept from the host's own stack: {error}; Linux 5.12 or \
                 later with nf_tables and CONFIG_NF_TABLES_NETDEV is needed"
            ))
        };
        let socket = socket(Some(netlink::NETFILTER), 0).map_err(unsupported)?;
        let mut shield = Self { socket, table: format!("mswitch-if{index}"), chains: 0 };
        let comment = comment(owner);
        let mut batch = Messages::default();
        begin_batch(&mut batch);
        batch
            .begin(NEW_TABLE, REQUEST | ACK | CREATE_NEW, 1, &family(NFPROTO_NETDEV, 0))
            .attribute(TABLE_NAME, &text(&shield.table))
            .attribute(TABLE_FLAGS, &NFT_TABLE_F_OWNER.to_be_bytes())
            .attribute(TABLE_USERDATA, &comment);
        shield.add_chain(&mut batch, name);
        end_batch(&mut batch);
        match shield.execute(&batch, 2) {
            Ok(()) => {
                shield.chains = 1;
                Ok(shield)
            }
            // The table belongs to another socket, or the caller has no capability.
            Err(Errno::PERM | Errno::EXIST) => Err(OpenError(match shield.holder() {
                Some(holder) => held(name, &holder),
                None => format!("interface `{name}`: attaching an interface needs CAP_NET_ADMIN"),
            })),
            Err(Errno::NOENT) => Err(OpenError(format!("interface `{name}` vanished while it was attached"))),
            Err(error) => Err(unsupported(error)),
        }
    }

    /// Follows the interface to its new name. The kernel forgets a chain whose interface is renamed (from Linux 6.16).
    pub(super) fn rename(&mut self, name: &str) -> Result<(), OpenError> {
        let mut add = Messages::default();
        begin_batch(&mut add);
        self.add_chain(&mut add, name);
        end_batch(&mut add);
        self.execute(&add, 1).map_err(|error| {
            OpenError(format!(
                "interface `{name}`: its packets cannot be kept from the host's own stack: {error}"
            ))
        })?;
        let mut delete = Messages::default();
        begin_batch(&mut delete);
        delete
            .begin(DELETE_CHAIN, REQUEST | ACK, 1, &family(NFPROTO_NETDEV, 0))
            .attribute(CHAIN_TABLE, &text(&self.table))
            .attribute(CHAIN_NAME, &text(&chain_name(self.chains - 1)));
        end_batch(&mut delete);
        self.chains += 1;
        // An empty chain that remains does no harm.
        let _ = self.execute(&delete, 1);
        Ok(())
    }

    /// Returns the name of the table, for users.
    pub(super) fn table(&self) -> &str {
        &self.table
    }

    fn add_chain(&self, batch: &mut Messages, device: &str) {
        batch
            .begin(NEW_CHAIN, REQUEST | ACK | CREATE_NEW, 2, &family(NFPROTO_NETDEV, 0))
            .attribute(CHAIN_TABLE, &text(&self.table))
            .attribute(CHAIN_NAME, &text(&chain_name(self.chains)))
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

    /// Sends a transaction with this many steps, and waits for their answers. Returns the first error.
    fn execute(&self, batch: &Messages, steps: usize) -> Result<(), Errno> {
        batch.send(&self.socket)?;
        let (mut room, mut answers) = (vec![0; ROOM], 0);
        let mut failed = None;
        while answers < steps {
            for message in messages(receive(&self.socket, &mut room)?) {
                let Some(code) = message.code() else { continue };
                answers += 1;
                if code != 0 {
                    failed = failed.or(Some(Errno::from_raw_os_error(-code)));
                }
                if message.sequence == 0 {
                    // The answer to the batch as a whole: the kernel has looked at nothing else.
                    answers = steps;
                }
            }
        }
        failed.map_or(Ok(()), Err)
    }

    /// Returns the owner of an existing table of this name.
    fn holder(&self) -> Option<String> {
        let mut request = Messages::default();
        request
            .begin(GET_TABLE, REQUEST | ACK, 3, &family(NFPROTO_NETDEV, 0))
            .attribute(TABLE_NAME, &text(&self.table));
        request.send(&self.socket).ok()?;
        let (mut room, mut holder) = (vec![0; ROOM], None);
        loop {
            for message in messages(receive(&self.socket, &mut room).ok()?).filter(|m| m.sequence == 3) {
                if message.kind == ERROR {
                    return holder;
                }
                let comment = message.attributes(4).find(|(kind, _)| *kind == TABLE_USERDATA);
                holder = Some(comment.map_or("an unknown program".into(), |(_, value)| {
                    text_of(value.get(2..).unwrap_or_default())
                }));
            }
        }
    }
}

impl Drop for Shield {
    fn drop(&mut self) {
        if self.chains == 0 {
            return;
        }
        // The kernel would remove the table when it closes the socket, but waits longer for that, one table at a time.
        let mut delete = Messages::default();
        begin_batch(&mut delete);
        delete
            .begin(DELETE_TABLE, REQUEST | ACK, 1, &family(NFPROTO_NETDEV, 0))
            .attribute(TABLE_NAME, &text(&self.table));
        end_batch(&mut delete);
        let _ = self.execute(&delete, 1);
    }
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

fn begin_batch(batch: &mut Messages) {
    batch.begin(BATCH[0], REQUEST, 0, &family(NFPROTO_UNSPEC, NFTABLES));
}

fn end_batch(batch: &mut Messages) {
    batch.begin(BATCH[1], REQUEST, 0, &family(NFPROTO_UNSPEC, NFTABLES));
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
