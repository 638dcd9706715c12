//! The interface in the host's view: MAC address, MTU, addresses, up. Set by netlink, in the namespace of the calling
//! thread.
//!
//! An interface that existed before its port keeps what its owner set: only given options change it.

use rtnetlink::packet_route::address::AddressHeaderFlags;
use rtnetlink::packet_route::link::LinkAttribute;
use rtnetlink::{Handle, LinkUnspec};

use super::lookup::Existing;
use super::options::{Address, DEFAULT_MTU, Options};
use crate::OpenError;

/// Limit on the host's GSO frames, Ethernet header included, so that none is longer than the fabric takes
/// ([`fabric::rx::MAX_PACKET`]); the kernel's own default would let them be 14 bytes longer.
const GSO_MAX_SIZE: u32 = fabric::rx::MAX_PACKET;

/// Configures interface `name` with this index, which was made for the port, and sets it up.
pub(super) fn configure(name: &str, index: u32, options: &Options) -> Result<(), OpenError> {
    ask(name, async |handle| {
        let mtu = Some(options.mtu.unwrap_or(DEFAULT_MTU));
        apply(&handle, name, index, &Options { mtu, ..options.clone() }, None).await?;
        let set = LinkUnspec::new_with_index(index).up().build();
        handle.link().set(set).execute().await.map_err(|e| refused(name, "set it up".to_owned(), e))
    })
}

/// Applies the options that are given to interface `name`, which existed before: all of them, or none if one is refused.
pub(super) fn adjust(name: &str, found: &Existing, options: &Options) -> Result<(), OpenError> {
    ask(name, async |handle| {
        let mut added = Vec::new();
        let applied = apply(&handle, name, found.index, options, Some(&mut added)).await;
        if applied.is_err() {
            undo(&handle, found, options, &added).await;
        }
        applied
    })
}

/// Removes from interface `name` with this index what the options `before` gave it and `after` do not: addresses, and
/// the MTU. A MAC address has no value to return to.
pub(super) fn withdraw(name: &str, index: u32, before: &Options, after: &Options) -> Result<(), OpenError> {
    ask(name, async |handle| {
        for address in before.addresses.iter().filter(|address| !after.addresses.contains(address)) {
            match remove(&handle, index, address).await {
                // Somebody else has removed it.
                Err(error) if is(&error, libc::EADDRNOTAVAIL) => {}
                done => done.map_err(|e| refused(name, format!("remove address {address}"), e))?,
            }
        }
        if before.mtu.is_some() && after.mtu.is_none() {
            let set = LinkUnspec::new_with_index(index).mtu(DEFAULT_MTU).build();
            let set = handle.link().set(set).execute().await;
            set.map_err(|e| refused(name, format!("set its MTU {DEFAULT_MTU}"), e))?;
        }
        Ok(())
    })
}

/// Sets the alias of interface `name` with this index; an empty one removes it.
pub(super) fn set_alias(name: &str, index: u32, alias: &str) -> Result<(), OpenError> {
    ask(name, async |handle| {
        let alias = LinkAttribute::IfAlias(alias.to_owned());
        let set = LinkUnspec::new_with_index(index).append_extra_attribute(alias).build();
        handle.link().set(set).execute().await.map_err(|e| refused(name, "set its alias".to_owned(), e))
    })
}

/// Sets the longest segment of interface `name` with this index, bytes.
pub(super) fn set_gso_max_size(name: &str, index: u32, size: u32) -> Result<(), OpenError> {
    ask(name, async |handle| {
        let set = LinkUnspec::new_with_index(index).append_extra_attribute(LinkAttribute::GsoMaxSize(size));
        let set = set.build();
        handle.link().set(set).execute().await.map_err(|e| refused(name, "limit its segments".to_owned(), e))
    })
}

/// Changes the MTU of interface `name` with this index.
pub(super) fn set_mtu(name: &str, index: u32, mtu: u32) -> Result<(), OpenError> {
    ask(name, async |handle| {
        let set = LinkUnspec::new_with_index(index).mtu(mtu).build();
        handle.link().set(set).execute().await.map_err(|e| refused(name, format!("set its MTU {mtu}"), e))
    })
}

/// Talks to the kernel about interface `name`.
fn ask(name: &str, talk: impl AsyncFnOnce(Handle) -> Result<(), OpenError>) -> Result<(), OpenError> {
    let netlink =
        |error: std::io::Error| OpenError(format!("interface `{name}`: cannot talk to the kernel: {error}"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().map_err(netlink)?;
    runtime.block_on(async {
        let (connection, handle, _) = rtnetlink::new_connection().map_err(netlink)?;
        tokio::spawn(connection);
        talk(handle).await
    })
}

fn refused(name: &str, what: String, error: rtnetlink::Error) -> OpenError {
    let why = match error {
        rtnetlink::Error::NetlinkError(message) => message.to_io().to_string(),
        other => other.to_string(),
    };
    OpenError(format!("interface `{name}`: cannot {what}: {why}"))
}

/// Applies options. An interface that existed may have their addresses already; those that are new are put into `added`.
async fn apply(
    handle: &Handle,
    name: &str,
    index: u32,
    options: &Options,
    mut added: Option<&mut Vec<Address>>,
) -> Result<(), OpenError> {
    let refused = |what: String, error: rtnetlink::Error| refused(name, what, error);
    let link = || LinkUnspec::new_with_index(index);
    if let Some(mac) = options.mac {
        let set = link().address(mac.0.to_vec()).build();
        handle.link().set(set).execute().await.map_err(|e| refused(format!("set its address {mac}"), e))?;
    }
    if let Some(mtu) = options.mtu {
        let set = link().mtu(mtu).build();
        handle.link().set(set).execute().await.map_err(|e| refused(format!("set its MTU {mtu}"), e))?;
    }
    let set = link().append_extra_attribute(LinkAttribute::GsoMaxSize(GSO_MAX_SIZE)).build();
    handle.link().set(set).execute().await.map_err(|e| refused("limit its segments".to_owned(), e))?;
    for address in &options.addresses {
        let mut add = handle.address().add(index, address.ip(), address.prefix());
        // The operator assigned the address, so duplicate address detection (RFC 4862 §5.4) would only cost a second.
        if address.ip().is_ipv6() {
            add.message_mut().header.flags |= AddressHeaderFlags::Nodad;
        }
        match add.execute().await {
            Err(error) if added.is_some() && is(&error, libc::EEXIST) => continue,
            done => done.map_err(|e| refused(format!("add address {address}"), e))?,
        }
        if let Some(added) = &mut added {
            added.push(*address);
        }
    }
    Ok(())
}

/// Returns an interface to what was found, after [`apply`] has failed. Best effort: whoever made it may delete it.
async fn undo(handle: &Handle, found: &Existing, options: &Options, added: &[Address]) {
    for address in added {
        let _ = remove(handle, found.index, address).await;
    }
    let link = || LinkUnspec::new_with_index(found.index);
    if options.mtu.is_some() {
        let _ = handle.link().set(link().mtu(found.mtu).build()).execute().await;
    }
    if let Some(mac) = found.mac.filter(|_| options.mac.is_some()) {
        let _ = handle.link().set(link().address(mac.0.to_vec()).build()).execute().await;
    }
}

/// Removes an address.
async fn remove(handle: &Handle, index: u32, address: &Address) -> Result<(), rtnetlink::Error> {
    let mut add = handle.address().add(index, address.ip(), address.prefix());
    let message = add.message_mut().clone();
    handle.address().del(message).execute().await
}

/// Returns whether the kernel answered with this error.
fn is(error: &rtnetlink::Error, code: libc::c_int) -> bool {
    matches!(error, rtnetlink::Error::NetlinkError(message) if message.raw_code() == -code)
}
