//! The interface in the host's view: MAC address, MTU, addresses, up. Set by netlink, in the namespace of the calling
//! thread.

use rtnetlink::packet_route::address::AddressHeaderFlags;
use rtnetlink::packet_route::link::LinkAttribute;
use rtnetlink::{Handle, LinkUnspec};

use super::options::Options;
use crate::OpenError;

/// Limit on the host's GSO frames, Ethernet header included, so that none is longer than the fabric takes
/// ([`fabric::rx::MAX_PACKET`]); the kernel's own default would let them be 14 bytes longer.
const GSO_MAX_SIZE: u32 = fabric::rx::MAX_PACKET;

/// Configures interface `name` with this index, and sets it up.
pub(super) fn configure(name: &str, index: u32, options: &Options) -> Result<(), OpenError> {
    ask(name, async |handle| configure_with(&handle, name, index, options).await)
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

async fn configure_with(handle: &Handle, name: &str, index: u32, options: &Options) -> Result<(), OpenError> {
    let refused = |what: String, error: rtnetlink::Error| refused(name, what, error);
    let link = || LinkUnspec::new_with_index(index);
    if let Some(mac) = options.mac {
        let set = link().address(mac.0.to_vec()).build();
        handle.link().set(set).execute().await.map_err(|e| refused(format!("set its address {mac}"), e))?;
    }
    let set = link().mtu(options.mtu).build();
    handle.link().set(set).execute().await.map_err(|e| refused(format!("set its MTU {}", options.mtu), e))?;
    let set = link().append_extra_attribute(LinkAttribute::GsoMaxSize(GSO_MAX_SIZE)).build();
    handle.link().set(set).execute().await.map_err(|e| refused("limit its segments".to_owned(), e))?;
    for address in &options.addresses {
        let mut add = handle.address().add(index, address.ip(), address.prefix());
        // The operator assigned the address, so duplicate address detection (RFC 4862 §5.4) would only cost a second.
        if address.ip().is_ipv6() {
            add.message_mut().header.flags |= AddressHeaderFlags::Nodad;
        }
        add.execute().await.map_err(|e| refused(format!("add address {address}"), e))?;
    }
    handle.link().set(link().up().build()).execute().await.map_err(|e| refused("set it up".to_owned(), e))
}
