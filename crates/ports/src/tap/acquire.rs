//! The interface of a TAP port: made for the port, or taken if one of its name exists.
//!
//! Everything happens in the network namespace of the calling thread.

use super::device::{self, Device, Unattached};
use super::interface;
use super::lookup::{self, Existing, Kind};
use super::options::{DEFAULT_MTU, Options};
use crate::{OpenError, netns};

/// Maker of an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Maker {
    /// The port itself.
    Port,
    /// An earlier port, as the interface's alias says.
    EarlierPort,
    /// Another program, whose setting is restored when the port closes: the longest segment, bytes.
    Others { gso_max_size: u32 },
}

/// The interface of a TAP port.
pub(super) struct Tap {
    pub(super) device: Device,
    pub(super) index: u32,
    pub(super) mtu: u32,
    pub(super) maker: Maker,
}

/// The interface of the configured name.
pub(super) enum Source {
    Tap(Tap),
    /// An existing interface of another kind, such as `veth` (empty for hardware), or a TAP whose other end a process
    /// has, such as a VM.
    Other(String),
}

/// Makes interface `name`, or takes the one that exists.
pub(super) fn get(name: &str, options: &Options) -> Result<Source, OpenError> {
    let Some(found) = find(name)? else { return make(name, options).map(Source::Tap) };
    match &found.kind {
        Kind::Tap { held: 1.., .. } => connect(name, &found),
        &Kind::Tap { multi_queue, .. } => match take(name, options, &found, multi_queue)? {
            Some(tap) => Ok(Source::Tap(tap)),
            None => connect(name, &found),
        },
        Kind::Tun => Err(OpenError(format!(
            "interface `{name}` exists already and is a TUN interface, which carries no Ethernet frames; choose \
             another name, or remove it with `{}`",
            delete(name, options)
        ))),
        Kind::Other(kind) => {
            refuse_hosts(name, &found)?;
            Ok(Source::Other(kind.clone()))
        }
    }
}

/// Deletes interface `name` if it is one that an earlier port left and that nobody holds.
pub(super) fn delete_left(name: &str) -> Result<(), OpenError> {
    let Some(found) = find(name)?.filter(|found| found.ours) else { return Ok(()) };
    let Kind::Tap { multi_queue, held: 0 } = found.kind else { return Ok(()) };
    match Device::attach(name, 1, multi_queue) {
        Ok(device) => {
            verify(name, &found, 1)?;
            end_persistence(name, &device)
        }
        Err(Unattached::Held) => Ok(()),
        Err(Unattached::Refused(error)) => Err(error),
    }
}

fn find(name: &str) -> Result<Option<Existing>, OpenError> {
    lookup::find(name)
        .map_err(|error| OpenError(format!("interface `{name}`: it cannot be looked up: {error}")))
}

fn make(name: &str, options: &Options) -> Result<Tap, OpenError> {
    let device = Device::create(name, options.queues, options.offloads)?;
    let index = device.index(name)?;
    interface::configure(name, index, options)?;
    Ok(Tap { device, index, mtu: options.mtu.unwrap_or(DEFAULT_MTU), maker: Maker::Port })
}

/// Returns the TAP of a process as an interface to attach; refuses that of a switch.
fn connect(name: &str, found: &Existing) -> Result<Source, OpenError> {
    let (pid, command) = device::other_holder(name)?;
    refuse_hosts(name, found)?;
    Ok(Source::Other(format!("TAP of process {pid} ({command})")))
}

/// Takes an existing TAP; returns `None` if a process holds it. Nothing of it changes before it is certain that the
/// port alone has it. The kernel reports queues of multi-queue interfaces only: whether a process holds the one queue of
/// another shows when it is opened.
fn take(
    name: &str,
    options: &Options,
    found: &Existing,
    multi_queue: bool,
) -> Result<Option<Tap>, OpenError> {
    let queues = if multi_queue { options.queues } else { 1 };
    let mut device = match Device::attach(name, queues, multi_queue) {
        Ok(device) => device,
        Err(Unattached::Held) => return Ok(None),
        Err(Unattached::Refused(error)) => return Err(error),
    };
    verify(name, found, queues)?;
    if queues < options.queues {
        if !found.ours {
            return Err(OpenError(format!(
                "interface `{name}` exists already and has one queue, not {}; leave `queues` at 1, or remove the \
                 interface with `{}`, for the switch to make it anew",
                options.queues,
                delete(name, options)
            )));
        }
        end_persistence(name, &device)?;
        drop(device);
        return make(name, options).map(Some);
    }
    device.set_up(name, options.offloads)?;
    let maker = match found.ours {
        true => Maker::EarlierPort,
        false => Maker::Others { gso_max_size: found.gso_max_size },
    };
    let tap = Tap { device, index: found.index, mtu: options.mtu.unwrap_or(found.mtu), maker };
    match interface::adjust(name, found, options) {
        Ok(()) => Ok(Some(tap)),
        Err(error) => {
            tap.release(name);
            Err(error)
        }
    }
}

/// Refuses interface `name`, of which `queues` queues were just opened, unless it is still the one that was found, and
/// nobody else has opened one. If it was deleted meanwhile, opening a queue has made another one, which vanishes with
/// the queue.
fn verify(name: &str, found: &Existing, queues: u16) -> Result<(), OpenError> {
    if find(name)?.is_some_and(|now| is_ours_alone(&now, found, queues)) {
        return Ok(());
    }
    Err(OpenError(format!(
        "interface `{name}`: another process opened, deleted or replaced it at the same time"
    )))
}

/// Returns whether an interface is the one that was found before, with no queues but these.
fn is_ours_alone(now: &Existing, found: &Existing, queues: u16) -> bool {
    let alone = match now.kind {
        Kind::Tap { multi_queue: true, held } => held == u32::from(queues),
        // Its one queue is open.
        Kind::Tap { multi_queue: false, .. } => true,
        Kind::Tun | Kind::Other(_) => false,
    };
    alone && now.index == found.index
}

/// Lets interface `name` vanish with its queues.
fn end_persistence(name: &str, device: &Device) -> Result<(), OpenError> {
    device
        .set_persistent(false)
        .map_err(|error| OpenError(format!("interface `{name}`: the kernel refused to remove it: {error}")))
}

impl Tap {
    /// Closes the device. An interface that others made is as it was, apart from given options.
    pub(super) fn release(self, name: &str) {
        if let Maker::Others { gso_max_size } = self.maker {
            // Best effort: it may have been deleted.
            let _ = interface::set_gso_max_size(name, self.index, gso_max_size);
        }
        self.device.release();
    }
}

/// Refuses an interface through which other hosts reach this one, itself or an interface above it: it would be cut off.
fn refuse_hosts(name: &str, found: &Existing) -> Result<(), OpenError> {
    let unread =
        |what: &str, error| OpenError(format!("interface `{name}`: its {what} cannot be read: {error}"));
    if let Some(address) = lookup::address(found.index).map_err(|error| unread("addresses", error))? {
        return Err(OpenError(format!(
            "interface `{name}` exists already and has the host's address {address}, which would be cut off; attach it \
             with `--type netdev --host`, so that the host keeps its addresses, or choose another name"
        )));
    }
    if let Some(upper) = lookup::upper(found.index).map_err(|error| unread("upper interfaces", error))? {
        return Err(OpenError(format!(
            "interface `{name}` exists already and carries interface `{upper}`, which would be cut off; remove \
             `{upper}`, attach `{name}` with `--type netdev` nevertheless, or choose another name"
        )));
    }
    Ok(())
}

fn delete(name: &str, options: &Options) -> String {
    netns::ip(options.netns.as_ref(), &format!("link del {name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_that_changes_while_it_is_taken_is_noticed() {
        let tap = |index, multi_queue, held| Existing {
            index,
            mac: None,
            mtu: 1500,
            gso_max_size: 65536,
            ours: false,
            kind: Kind::Tap { multi_queue, held },
        };
        let alone = |now: &Existing, queues| is_ours_alone(now, &tap(7, true, 0), queues);
        assert!(alone(&tap(7, true, 2), 2));
        assert!(!alone(&tap(7, true, 3), 2), "another process has opened a queue");
        assert!(!alone(&tap(8, true, 2), 2), "another interface has its name");
        assert!(alone(&tap(7, false, 0), 1), "queues are not reported");
        assert!(!alone(&tap(8, false, 0), 1));
        assert!(!alone(&Existing { kind: Kind::Other("veth".into()), ..tap(7, true, 2) }, 2));
    }
}
