//! Everything that can be known before a benchmark starts is checked here, with errors that say what to do.

use std::path::{Path, PathBuf};

use crate::compare::LEAST_ROUNDS;
use crate::cpus::Cpus;
use crate::error::{Error, Result};
use crate::generator::{Generator, Report};
use crate::journal::PeerFacts;
use crate::lab::Lab;
use crate::peers::{self, Peer, Site};
use crate::scenarios::{Attachment, Scenario};
use crate::settings::{Settings, Wishes};

/// Huge pages for the generator and the functions of chains beside a switch that needs some: all switches then have
/// clients with huge pages.
const GENERATOR_PAGES: u64 = 512;

/// What the checks found.
pub(crate) struct Ready {
    pub(crate) settings: Settings,
    pub(crate) peers: Vec<(Box<dyn Peer>, String)>,
    pub(crate) absent: Vec<(String, String)>,
    pub(crate) scenarios: Vec<Scenario>,
    pub(crate) cpus: Cpus,
    pub(crate) generator: Generator,
    /// Fingerprint of the generator.
    pub(crate) build: String,
}

/// Checks what needs no laboratory: names, programs and their versions, CPUs, privileges. `mswitch` is the program of the
/// peers of that name, `before` an earlier one to measure beside it.
pub(crate) fn check(wishes: &Wishes, mswitch: &Path, before: Option<&Path>) -> Result<Ready> {
    let candidates = peers::all(mswitch);
    let mut absent = Vec::new();
    for other in peers::unsupported() {
        if wishes.peers.iter().any(|name| name == other.name) {
            return Err(Error::new(format!("peer {}: {}", other.name, other.reason())));
        }
        absent.push((other.name.to_owned(), other.reason()));
    }
    let names: Vec<&str> = candidates.iter().map(|peer| peer.name()).collect();
    let mut settings = Settings::of(wishes, &names)?;
    if before.is_some() && wishes.rounds.is_none() {
        settings.fewest = settings.fewest.max(LEAST_ROUNDS);
        settings.most = settings.most.max(LEAST_ROUNDS);
    }
    let mut earlier = before.map(peers::before).unwrap_or_default();
    let mut missing = None;
    let mut ready = Vec::new();
    for peer in candidates {
        if !settings.peers.iter().any(|name| name == peer.name()) {
            continue;
        }
        // Neighbours in time: what the machine changes between them is least.
        let same = earlier.iter().position(|other| other.name() == peers::suffixed(peer.name()));
        let same = same.map(|index| earlier.swap_remove(index));
        match peer.version() {
            Ok(version) => ready.push((peer, version)),
            Err(error) if wishes.peers.is_empty() => {
                absent.push((peer.name().to_owned(), error.to_string()));
                continue;
            }
            Err(error) => return Err(Error::new(format!("peer {}: {error}", peer.name()))),
        }
        match same.map(|same| (same.version(), same)) {
            Some((Ok(version), same)) => ready.push((same, version)),
            Some((Err(error), same)) if wishes.peers.is_empty() => {
                absent.push((same.name().to_owned(), error.to_string()));
                missing.get_or_insert(error);
            }
            Some((Err(error), _)) => return Err(missing_before(before, &error)),
            None => {}
        }
    }
    settings.peers = ready.iter().map(|(peer, _)| peer.name().to_owned()).collect();
    if before.is_some() && !settings.peers.iter().any(|name| peers::is_before(name)) {
        let none =
            Error::new(format!("no peer runs mswitch; peers of this run: {}", settings.peers.join(", ")));
        return Err(missing_before(before, &missing.unwrap_or(none)));
    }
    let scenarios = settings.scenarios();
    for (peer, _) in ready.iter().filter(|_| !wishes.peers.is_empty() && !wishes.scenarios.is_empty()) {
        if !scenarios.iter().any(|scenario| supports(peer.as_ref(), scenario)) {
            return Err(Error::new(format!(
                "peer {} cannot run {}; it can run: {}",
                peer.name(),
                settings.scenarios.join(", "),
                runnable(peer.as_ref()).join(", ")
            )));
        }
    }
    if !rustix::process::geteuid().is_root() {
        return Err(Error::new("a benchmark needs root: namespaces, huge pages, pinned threads; use sudo"));
    }
    for tool in ["ip", "setsid", "nice", "sysctl"] {
        if !peers::installed(tool) {
            return Err(Error::new(format!(
                "{tool} is missing; on Debian: apt-get install iproute2 util-linux coreutils procps"
            )));
        }
    }
    let generator = Generator::find()?;
    Ok(Ready {
        settings,
        peers: ready,
        absent,
        scenarios,
        cpus: Cpus::choose()?,
        build: generator.build()?,
        generator,
    })
}

fn missing_before(program: Option<&Path>, reason: &Error) -> Error {
    let program = program.map(|program| program.display().to_string()).unwrap_or_default();
    Error::new(format!("--before {program}: {reason}"))
}

fn runnable(peer: &dyn Peer) -> Vec<String> {
    let all = crate::scenarios::all().into_iter();
    all.filter(|scenario| supports(peer, scenario)).map(|scenario| scenario.name).collect()
}

/// Whether a peer can run a scenario.
pub(crate) fn supports(peer: &dyn Peer, scenario: &Scenario) -> bool {
    peer.supports(&scenario.topology)
}

/// Checks what needs the laboratory: huge pages, and that the generator starts and has the right version. Returns its
/// report.
pub(crate) fn check_in(lab: &Lab, ready: &Ready) -> Result<Report> {
    let pages = ready.peers.iter().map(|(peer, _)| peer.huge_pages()).max().unwrap_or(0);
    if pages > 0 {
        lab.huge_pages(pages + GENERATOR_PAGES)?;
    }
    ready.generator.probe(lab, ready.cpus.generator)
}

/// The peers, with the command lines that start them.
pub(crate) fn facts(lab: &Lab, ready: &Ready) -> Vec<PeerFacts> {
    let of = |(peer, version): &(Box<dyn Peer>, String)| {
        let scenarios = ready.scenarios.iter().filter(|scenario| supports(peer.as_ref(), scenario));
        let commands = scenarios.map(|scenario| {
            let folder: PathBuf = lab.path("switch");
            let topology = &scenario.topology;
            let site = Site { lab, topology, folder, namespace: None, cpus: ready.cpus };
            let mut lines = peer.commands(&site);
            if topology.has(Attachment::Veth) {
                lines.insert(0, "# in a network namespace with the interfaces v0, v1".into());
            }
            (scenario.name.clone(), lines)
        });
        PeerFacts {
            name: peer.name().into(),
            about: peer.about().into(),
            version: version.clone(),
            commands: commands.collect(),
        }
    };
    ready.peers.iter().map(of).collect()
}
