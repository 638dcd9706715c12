//! TAP ports whose interface exists and is no TAP, such as one end of a veth pair, or is the TAP of a VM: a netdev port
//! serves them, so that programs that know TAP ports only can attach what others have made.

use fabric::switch::PortRef;

use super::options::Options;
use crate::host_ports::Unfit;
use crate::{Environment, OpenError, Port, Spec, Status, faults, netdev};

/// Attaches an interface of this kind; empty for hardware.
pub(super) fn open(
    kind: &str,
    name: &str,
    options: &Options,
    at: PortRef,
    env: &Environment,
) -> Result<Box<dyn Port>, OpenError> {
    let kind = if kind.is_empty() { "network card" } else { kind }.to_owned();
    check(&kind, name, options)?;
    let port = env.switch.settings(at).map_err(|error| OpenError(error.to_string()))?.name;
    let inner = netdev::open(&as_netdev(name, options), at, env)?;
    let why = format!(
        "cannot have the host's addresses, because interface `{name}` existed already and is a {kind}; give the port \
         another `interface`, which the switch makes"
    );
    let unfit = env.hosts.mark_unfit((at.bridge, port), why);
    Ok(Box::new(AsNetdev { kind, name: name.to_owned(), options: options.clone(), inner, _unfit: unfit }))
}

/// Refuses options that would configure the interface of the host.
fn check(kind: &str, name: &str, options: &Options) -> Result<(), OpenError> {
    let refused = [
        ("addresses", !options.addresses.is_empty()),
        ("mac", options.mac.is_some()),
        ("offloads", !options.offloads),
    ];
    match refused.iter().find(|(_, given)| *given) {
        Some((option, _)) => Err(OpenError(format!(
            "{option}: interface `{name}` exists already as a {kind}, which the switch attaches but does not configure; \
             leave the option out, or choose another name"
        ))),
        None => Ok(()),
    }
}

fn as_netdev(name: &str, options: &Options) -> netdev::Options {
    netdev::Options {
        interface: Some(name.to_owned()),
        netns: options.netns.clone(),
        driver: netdev::Driver::AfPacket,
        queues: options.queues,
        ..netdev::Options::default()
    }
}

struct AsNetdev {
    kind: String,
    /// Name of the interface.
    name: String,
    /// Options that the port was opened with.
    options: Options,
    inner: Box<dyn Port>,
    /// Tells netdev ports that this is no host port.
    _unfit: Unfit,
}

impl Port for AsNetdev {
    fn status(&self) -> Status {
        let mut status = self.inner.status();
        let why = format!("netdev: the interface is a {}", self.kind);
        status.details.insert(0, ("attached-as".to_owned(), why));
        status
    }

    fn speed(&self) -> Option<u32> {
        self.inner.speed()
    }

    fn reconfigure(&self, spec: &Spec) -> Result<bool, OpenError> {
        let Spec::Tap(wanted) = spec else { return Ok(false) };
        if wanted.interface != self.options.interface {
            return Ok(false);
        }
        check(&self.kind, &self.name, wanted)?;
        self.inner.reconfigure(&Spec::Netdev(as_netdev(&self.name, wanted)))
    }

    fn notice(&self) -> Option<String> {
        Some(format!(
            "interface `{}` existed already and is a {}: attached as `--type netdev` would",
            self.name, self.kind
        ))
    }

    fn set_admin(&self, up: bool) {
        self.inner.set_admin(up);
    }

    fn faults(&self) -> Option<&faults::Faults> {
        self.inner.faults()
    }

    fn begin_close(&self) {
        self.inner.begin_close();
    }

    fn lost(&self) -> Option<String> {
        self.inner.lost()
    }

    fn close(&self) {
        self.inner.close();
    }
}
