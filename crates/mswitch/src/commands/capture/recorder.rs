//! Output of a capture: one file, standard output, or a ring of files.
//!
//! Invariant: each file of a ring is complete. It begins with a section header and all interfaces known so far, and
//! ends with their statistics.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use control::proto;
use ports::pcap::pcapng::{self, Packet, Statistics};

const APPLICATION: &str = concat!("mswitch capture ", env!("CARGO_PKG_VERSION"));

/// Size and number of the files of a ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ring {
    /// Bytes of a file.
    pub(super) size: u64,
    /// Number of files.
    pub(super) files: u32,
}

/// A pcapng interface: a port.
struct Interface {
    port: u32,
    name: String,
    about: String,
    statistics: Statistics,
}

/// Writer of a capture's packets.
pub(super) struct Recorder {
    out: Box<dyn Write>,
    /// Path of the file; `None` for standard output.
    path: Option<PathBuf>,
    ring: Option<Ring>,
    /// Number of the current file, from 0.
    file: u64,
    /// Bytes in the current file, including `pending`.
    written: u64,
    /// Whether the current file has a packet.
    begun: bool,
    pending: Vec<u8>,
    interfaces: Vec<Interface>,
    snaplen: u32,
    filter: Option<String>,
}

impl Recorder {
    /// Writes to standard output.
    pub(super) fn to_stdout(snaplen: u32, filter: Option<String>) -> io::Result<Self> {
        Self::new(Box::new(io::stdout()), None, None, snaplen, filter)
    }

    /// Writes to a file or a ring of files.
    pub(super) fn to_file(
        path: &Path,
        ring: Option<Ring>,
        snaplen: u32,
        filter: Option<String>,
    ) -> io::Result<Self> {
        let first = File::create(name(path, ring, 0))?;
        Self::new(Box::new(first), Some(path.into()), ring, snaplen, filter)
    }

    fn new(
        out: Box<dyn Write>,
        path: Option<PathBuf>,
        ring: Option<Ring>,
        snaplen: u32,
        filter: Option<String>,
    ) -> io::Result<Self> {
        let (pending, interfaces) = (Vec::new(), Vec::new());
        let mut recorder =
            Self { out, path, ring, file: 0, written: 0, begun: false, pending, interfaces, snaplen, filter };
        recorder.head();
        // A reader of the pipe gets the file header at once.
        recorder.flush()?;
        Ok(recorder)
    }

    fn head(&mut self) {
        let before = self.pending.len();
        pcapng::section(&mut self.pending, APPLICATION);
        for interface in &self.interfaces {
            let filter = self.filter.as_deref();
            pcapng::interface(&mut self.pending, &interface.name, &interface.about, self.snaplen, filter);
        }
        self.written = (self.pending.len() - before) as u64;
        self.begun = false;
    }

    /// Adds a port as an interface.
    pub(super) fn interface(&mut self, port: u32, name: &str, about: &str) -> io::Result<()> {
        let before = self.pending.len();
        pcapng::interface(&mut self.pending, name, about, self.snaplen, self.filter.as_deref());
        self.written += (self.pending.len() - before) as u64;
        let (name, about, statistics) = (name.into(), about.into(), Statistics::default());
        self.interfaces.push(Interface { port, name, about, statistics });
        Ok(())
    }

    /// Writes a packet.
    pub(super) fn packet(&mut self, packet: &proto::CapturedPacket, comment: &str) -> io::Result<()> {
        let found = (0..).zip(&mut self.interfaces).find(|(_, interface)| interface.port == packet.port);
        let Some((number, interface)) = found else {
            return Err(io::Error::other("a packet of an unknown port; this is a bug in mswitch"));
        };
        interface.statistics.delivered += 1;
        let before = self.pending.len();
        let block = Packet {
            interface: number,
            at: packet.at_nanoseconds,
            outbound: packet.outbound,
            length: packet.length,
            data: &packet.data,
            comment,
        };
        pcapng::packet(&mut self.pending, &block);
        let size = (self.pending.len() - before) as u64;
        if self.begun && self.ring.is_some_and(|ring| self.written + size > ring.size) {
            self.pending.truncate(before);
            self.next_file()?;
            pcapng::packet(&mut self.pending, &block);
        }
        self.begun = true;
        self.written += size;
        Ok(())
    }

    /// Stores the daemon's counters of a port.
    pub(super) fn counters(&mut self, counters: proto::CaptureCounters) {
        if let Some(interface) = self.interfaces.iter_mut().find(|i| i.port == counters.port) {
            let delivered = interface.statistics.delivered;
            interface.statistics = Statistics {
                received: counters.seen,
                accepted: counters.kept,
                dropped: counters.missed,
                delivered,
            };
        }
    }

    /// Writes all pending bytes.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.out.write_all(&self.pending)?;
        self.pending.clear();
        self.out.flush()
    }

    /// Ends the file with its statistics.
    pub(super) fn finish(&mut self) -> io::Result<()> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64;
        for (number, interface) in (0..).zip(&self.interfaces) {
            pcapng::statistics(&mut self.pending, number, now, &interface.statistics);
        }
        self.flush()
    }

    fn next_file(&mut self) -> io::Result<()> {
        self.finish()?;
        if let (Some(path), Some(ring)) = (&self.path, self.ring) {
            self.file += 1;
            let number = (self.file % u64::from(ring.files)) as u32;
            self.out = Box::new(File::create(name(path, self.ring, number))?);
        }
        self.head();
        Ok(())
    }
}

/// Returns `trace.pcapng`, or `trace-0007.pcapng` for a ring.
fn name(path: &Path, ring: Option<Ring>, number: u32) -> PathBuf {
    if ring.is_none() {
        return path.into();
    }
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    match path.extension() {
        Some(extension) => path.with_file_name(format!("{stem}-{number:04}.{}", extension.to_string_lossy())),
        None => path.with_file_name(format!("{stem}-{number:04}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(port: u32, data: Vec<u8>) -> proto::CapturedPacket {
        proto::CapturedPacket { port, length: data.len() as u32, data, ..Default::default() }
    }

    #[test]
    fn a_ring_keeps_its_size_and_number() {
        let dir = tempfile::tempdir().unwrap();
        let ring = Ring { size: 4096, files: 3 };
        let path = dir.path().join("trace.pcapng");
        let mut recorder = Recorder::to_file(&path, Some(ring), 0, None).unwrap();
        recorder.interface(4, "vm1", "about").unwrap();
        for i in 0..100u8 {
            recorder.packet(&packet(4, vec![i; 500]), "comment").unwrap();
        }
        recorder.counters(proto::CaptureCounters { port: 4, seen: 100, kept: 100, missed: 0 });
        recorder.finish().unwrap();
        let mut files: Vec<_> = std::fs::read_dir(dir.path()).unwrap().map(|f| f.unwrap().path()).collect();
        files.sort();
        let names: Vec<_> = files.iter().map(|file| file.file_name().unwrap().to_str().unwrap()).collect();
        assert_eq!(names, ["trace-0000.pcapng", "trace-0001.pcapng", "trace-0002.pcapng"]);
        for file in files {
            let bytes = std::fs::read(file).unwrap();
            assert_eq!(bytes[..4], [0x0a, 0x0d, 0x0d, 0x0a]);
            assert!(
                bytes.len() as u64 <= ring.size + 200,
                "larger than its size and the statistics: {}",
                bytes.len()
            );
        }
    }

    #[test]
    fn a_packet_larger_than_a_file_gets_a_file_of_its_own() {
        let dir = tempfile::tempdir().unwrap();
        let ring = Ring { size: 4096, files: 9 };
        let mut recorder = Recorder::to_file(&dir.path().join("trace"), Some(ring), 0, None).unwrap();
        recorder.interface(0, "a", "").unwrap();
        for _ in 0..3 {
            recorder.packet(&packet(0, vec![0; 9000]), "").unwrap();
        }
        recorder.finish().unwrap();
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 3);
        assert!(dir.path().join("trace-0002").exists());
        assert!(recorder.packet(&packet(7, vec![0; 60]), "").is_err());
    }
}
