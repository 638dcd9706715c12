//! mswitch itself: one worker, pinned; a bridge per wire.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Deserialize;

use super::{Peer, START, Site, Switch, TABLE, Work, shown};
use crate::error::{Error, Result};
use crate::fingerprint::fingerprint;
use crate::lab::{Process, Stream, output};
use crate::scenarios::{Attachment, Topology};

/// mswitch with one logic.
struct Mswitch {
    name: &'static str,
    about: &'static str,
    logic: &'static str,
    polls: bool,
    program: PathBuf,
}

pub(super) fn peers(program: &Path) -> Vec<Box<dyn Peer>> {
    let of = |name, about, logic, polls| -> Box<dyn Peer> {
        Box::new(Mswitch { name, about, logic, polls, program: program.to_owned() })
    };
    vec![
        of("mswitch", "mswitch, logic `static`; its worker sleeps when idle", "static", false),
        of("mswitch-learning", "mswitch, logic `learning`; its worker sleeps when idle", "learning", false),
        of("mswitch-poll", "mswitch, logic `static`, with `--poll`", "static", true),
    ]
}

impl Mswitch {
    fn config(&self, site: &Site<'_>) -> String {
        let mut text = String::new();
        for (wire, (a, b)) in site.topology.wires.iter().enumerate() {
            let _ = write!(text, "[[bridge]]\nname = \"w{wire}\"\nlogic = \"{}\"\n", self.logic);
            if self.logic == "static" {
                let _ = writeln!(text, "params = {{ p{a} = \"p{b}\" }}");
            } else if site.topology.stations > 1 {
                let _ = writeln!(text, "params = {{ max-stations = \"{TABLE}\" }}");
            }
            for port in [*a, *b] {
                let keys = match site.topology.ports.get(port) {
                    Some(Attachment::Memif) => socket("memif", &site.socket(port)),
                    Some(Attachment::VhostUser) => socket("vhost-user", &site.socket(port)),
                    Some(Attachment::Veth) | None => {
                        format!(
                            "type = \"netdev\"\ninterface = \"{}\"\ndriver = \"af-xdp\"",
                            site.interface(port)
                        )
                    }
                };
                let _ = writeln!(text, "[[bridge.port]]\nname = \"p{port}\"\n{keys}");
            }
        }
        text
    }

    fn daemon(&self, site: &Site<'_>) -> Command {
        let mut command = site.command(&self.program);
        command.arg("daemon").arg("--socket").arg(site.folder.join("ctl"));
        command.arg("--config").arg(site.folder.join("config.toml"));
        command.args(["--workers", &site.cpus.switch.to_string()]);
        if self.polls {
            command.arg("--poll");
        }
        command
    }
}

fn socket(kind: &str, path: &Path) -> String {
    format!("type = \"{kind}\"\npath = \"{}\"", path.display())
}

impl Peer for Mswitch {
    fn name(&self) -> &str {
        self.name
    }

    fn about(&self) -> &str {
        self.about
    }

    fn version(&self) -> Result<String> {
        let text = output(Command::new(&self.program).arg("--version"))?;
        if !text.starts_with("mswitch ") {
            let first = text.lines().next().unwrap_or_default();
            let name = self.program.display();
            return Err(Error::new(format!("{name} is another program: its --version says `{first}`")));
        }
        Ok(format!("{}, program {:08x}", text.trim(), fingerprint(&self.program)?))
    }

    fn supports(&self, _: &Topology) -> bool {
        true
    }

    fn learns(&self) -> bool {
        self.logic == "learning"
    }

    fn commands(&self, site: &Site<'_>) -> Vec<String> {
        let folder = site.folder.to_string_lossy();
        let config = self.config(site).replace(&*folder, "DIR");
        vec![format!("cat >DIR/config.toml <<'END'\n{config}END"), shown(&self.daemon(site), &site.folder)]
    }

    fn start(&self, site: &Site<'_>) -> Result<Box<dyn Switch>> {
        let config = site.folder.join("config.toml");
        std::fs::write(&config, self.config(site)).map_err(Error::while_doing(config.display()))?;
        let mut process = site.lab.start(self.name, self.daemon(site), Stream::Log)?;
        let control = site.folder.join("ctl");
        process.until("control socket", START, |_| Ok(control.exists()))?;
        site.sockets_exist(&mut process)?;
        Ok(Box::new(Running::new(process, self.program.clone(), control, site)?))
    }
}

/// A running daemon.
pub(super) struct Running {
    process: Process,
    program: PathBuf,
    control: PathBuf,
    before: Totals,
}

/// The part of `worker show --json` that is needed.
#[derive(Deserialize)]
struct Workers {
    workers: Vec<Totals>,
}

/// Counters of all workers.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
struct Totals {
    packets: u64,
    batches: u64,
    busy_cycles: u64,
    elapsed_cycles: u64,
}

#[derive(Deserialize)]
struct Status {
    ports_up: usize,
}

fn ask(program: &Path, control: &Path, words: &[&str]) -> Result<String> {
    output(Command::new(program).args(words).arg("--json").arg("--socket").arg(control))
}

fn ports_up(program: &Path, control: &Path) -> Result<usize> {
    // Until the daemon serves its socket, it refuses connections.
    let Ok(text) = ask(program, control, &["status"]) else { return Ok(0) };
    let status: Status = serde_json::from_str(&text).map_err(Error::while_doing("mswitch status"))?;
    Ok(status.ports_up)
}

impl Running {
    /// Waits until the interfaces of a daemon are up. `program` is `mswitch`, `control` the daemon's socket.
    pub(super) fn new(
        mut process: Process,
        program: PathBuf,
        control: PathBuf,
        site: &Site<'_>,
    ) -> Result<Self> {
        // An interface's port comes up once its socket is bound.
        let interfaces = site.topology.ports.iter().filter(|kind| **kind == Attachment::Veth).count();
        process.until("ports up", START, |_| Ok(ports_up(&program, &control)? >= interfaces))?;
        let mut running = Self { process, program, control, before: Totals::default() };
        running.mark()?;
        Ok(running)
    }

    fn totals(&self) -> Result<Totals> {
        let text = ask(&self.program, &self.control, &["worker", "show"])?;
        let reply: Workers =
            serde_json::from_str(&text).map_err(Error::while_doing("mswitch worker show"))?;
        Ok(reply.workers.iter().fold(Totals::default(), |sum, worker| Totals {
            packets: sum.packets + worker.packets,
            batches: sum.batches + worker.batches,
            busy_cycles: sum.busy_cycles + worker.busy_cycles,
            elapsed_cycles: sum.elapsed_cycles + worker.elapsed_cycles,
        }))
    }
}

impl Switch for Running {
    fn pid(&self) -> Option<u32> {
        Some(self.process.pid())
    }

    fn mark(&mut self) -> Result<()> {
        self.before = self.totals()?;
        Ok(())
    }

    fn work(&mut self) -> Result<Work> {
        let now = self.totals()?;
        let ratio = |part: fn(&Totals) -> u64, whole: fn(&Totals) -> u64| {
            let grown = |field: fn(&Totals) -> u64| field(&now).saturating_sub(field(&self.before)) as f64;
            Some(grown(part) / grown(whole)).filter(|ratio| ratio.is_finite())
        };
        Ok(Work {
            cycles_per_packet: ratio(|t| t.busy_cycles, |t| t.packets),
            packets_per_batch: ratio(|t| t.packets, |t| t.batches),
            busy_share: ratio(|t| t.busy_cycles, |t| t.elapsed_cycles),
        })
    }

    fn must_run(&mut self) -> Result<()> {
        self.process.must_run()
    }
}
