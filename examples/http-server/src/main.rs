//! An HTTP server whose TCP runs in this process, on the host's address, beside the host's own servers.
//!
//! It shows what a stack at a port of the logic `three-tuple` needs, in this order:
//!
//! 1. a connection to its port ([`device`]), here a memif or vhost-user port with the stack smoltcp on it;
//! 2. a reservation of its endpoint, and the host's MAC address, through the bridge's socket;
//! 3. the stack with the host's addresses. It asks for neighbours itself; the host answers those who ask for it.
//!
//! ```text
//! mswitch-http-server --memif /run/mswitch/stack1.sock --reserve /run/mswitch/br0.reserve --port stack1 \
//!     --address 192.0.2.1/24 --listen 80
//! ```
//!
//! `--vhost-user SOCKET` replaces `--memif SOCKET` at a vhost-user port.
//!
//! `GET /` answers with a line, `GET /65536` with so many bytes. Ending the process ends the reservation.
#![forbid(unsafe_code)]

mod device;
mod http;
mod listener;

use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;
use std::time::Duration;

use clap::{ArgGroup, Parser};
use reservation::{Protocol, Reservations};
use smoltcp::iface::{Config, Interface, PollIngressSingleResult, PollResult};
use smoltcp::time::Instant;
use smoltcp::wire::{EthernetAddress, IpAddress, IpCidr};

use device::Port;
use listener::Listener;

type Error = Box<dyn std::error::Error>;

/// Longest sleep: the connection to the switch is checked that often.
const NAP: Duration = Duration::from_millis(500);

#[derive(Parser)]
#[command(group(ArgGroup::new("socket").required(true).args(["memif", "vhost_user"])))]
struct Options {
    /// Socket of the memif port.
    #[arg(long)]
    memif: Option<String>,
    /// Number of the memif interface.
    #[arg(long, default_value_t = 0)]
    id: u32,
    /// Socket of the vhost-user port.
    #[arg(long, conflicts_with = "id")]
    vhost_user: Option<PathBuf>,
    /// Socket where the bridge takes reservations.
    #[arg(long)]
    reserve: PathBuf,
    /// Name of the port in the bridge.
    #[arg(long)]
    port: String,
    /// Address of the host, with the prefix of its network.
    #[arg(long, value_parser = read::<IpCidr>)]
    address: IpCidr,
    /// Router for other networks.
    #[arg(long, value_parser = read::<IpAddress>)]
    gateway: Option<IpAddress>,
    /// TCP port to listen on.
    #[arg(long, default_value_t = 80)]
    listen: u16,
    /// Connections at a time.
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u16).range(1..))]
    connections: u16,
}

/// Reads a type of smoltcp, whose errors say nothing.
fn read<T: FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| "an IP address is expected; `--address` has the length of its prefix too".into())
}

fn main() -> ExitCode {
    match serve(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("mswitch-http-server: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Serves until the connection to the switch ends.
fn serve(options: &Options) -> Result<(), Error> {
    let mut port = match (&options.memif, &options.vhost_user) {
        (_, Some(socket)) => Port::vhost_user(socket)?,
        (memif, None) => Port::memif(memif.as_deref().unwrap_or_default(), options.id)?,
    };

    // The port has its client now; a reservation made before would end if that client went.
    let mut reservations = Reservations::connect(&options.reserve)?;
    let address = options.address.address().into();
    reservations.reserve(&options.port, Protocol::Tcp, address, options.listen..=options.listen)?;
    let mac = EthernetAddress(reservations.mac()?);

    let mut interface = Interface::new(Config::new(mac.into()), &mut port, Instant::now());
    interface.update_ip_addrs(|list| {
        // The list has room for one.
        let _ = list.push(options.address);
    });
    match options.gateway {
        Some(IpAddress::Ipv4(router)) => _ = interface.routes_mut().add_default_ipv4_route(router)?,
        Some(IpAddress::Ipv6(router)) => _ = interface.routes_mut().add_default_ipv6_route(router)?,
        None => {}
    }
    let mut listener = Listener::new(options.listen, options.connections.into());
    println!("serving http://{}:{} as {mac}", options.address.address(), options.listen);

    loop {
        let now = Instant::now();
        interface.poll_maintenance(now);
        loop {
            match interface.poll_ingress_single(now, &mut port, listener.sockets()) {
                PollIngressSingleResult::None => break,
                PollIngressSingleResult::PacketProcessed => {}
                PollIngressSingleResult::SocketStateChanged => listener.accept(now),
            }
        }
        let mut moved = listener.serve(now);
        while interface.poll_egress(now, &mut port, listener.sockets()) == PollResult::SocketStateChanged {
            moved = true;
        }
        port.flush()?;
        if moved {
            continue;
        }
        let pause = interface.poll_delay(Instant::now(), listener.sockets()).map(Duration::from);
        port.sleep(pause.unwrap_or(NAP).min(NAP))?;
    }
}
