//! The process whose socket occupies an endpoint, found in /proc for error messages. Best effort: it may be gone, or
//! invisible to the daemon.
//!
//! Invariants: a search ends after a fixed number of sockets and open files, and the next one begins a fifth of a
//! second later, so that no client keeps the others waiting with requests that have to fail.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::request::Protocol;

/// Lines of a table of sockets that are read.
const SOCKETS: usize = 200_000;
/// Open files that are looked at.
const FILES: usize = 200_000;
/// Time from the end of a search to the next one.
const PAUSE: Duration = Duration::from_millis(200);

/// Returns the process that occupies an endpoint in the calling thread's network namespace, such as
/// `nginx (pid 512)`.
pub(super) fn find(protocol: Protocol, address: IpAddr, port: u16) -> Option<String> {
    let tables = match protocol {
        Protocol::Tcp => ["tcp", "tcp6"],
        Protocol::Udp => ["udp", "udp6"],
        Protocol::Sctp => return None,
    };
    static LAST: Mutex<Option<Instant>> = Mutex::new(None);
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    if last.is_some_and(|last| last.elapsed() < PAUSE) {
        return None;
    }
    let inodes: Vec<_> = tables.iter().flat_map(|table| sockets(table, address, port)).collect();
    let found = owner(&inodes);
    *last = Some(Instant::now());
    found
}

/// Returns the inodes of sockets at an endpoint.
fn sockets(table: &str, address: IpAddr, port: u16) -> Vec<u64> {
    let Ok(file) = File::open(format!("/proc/thread-self/net/{table}")) else { return Vec::new() };
    let lines = BufReader::new(file).lines().map_while(Result::ok).take(SOCKETS);
    let at = |line: String| {
        let (local, inode) = socket(&line)?;
        let (bound, bound_port) = local;
        (bound_port == port && (bound == address || bound.is_unspecified())).then_some(inode)
    };
    lines.filter_map(at).filter(|inode| *inode > 0).collect()
}

/// Reads a line: local address, port and inode.
fn socket(line: &str) -> Option<((IpAddr, u16), u64)> {
    let mut words = line.split_ascii_whitespace();
    let (address, port) = words.nth(1)?.split_once(':')?;
    let inode = words.nth(7)?.parse().ok()?;
    Some(((self::address(address)?, u16::from_str_radix(port, 16).ok()?), inode))
}

/// Reads an address: words of 32 bits in hexadecimal, each in the byte order of the machine.
fn address(text: &str) -> Option<IpAddr> {
    let word = |at: usize| {
        let word = u32::from_str_radix(text.get(at * 8..at * 8 + 8)?, 16).ok()?;
        Some(word.to_ne_bytes())
    };
    match text.len() {
        8 => Some(Ipv4Addr::from(word(0)?).into()),
        32 => {
            let words = [word(0)?, word(1)?, word(2)?, word(3)?];
            let bytes: [u8; 16] = words.concat().try_into().ok()?;
            Some(Ipv6Addr::from(bytes).to_canonical())
        }
        _ => None,
    }
}

/// Returns the first process that has one of these sockets open.
fn owner(inodes: &[u64]) -> Option<String> {
    if inodes.is_empty() {
        return None;
    }
    let wanted: Vec<_> = inodes.iter().map(|inode| format!("socket:[{inode}]")).collect();
    let mut looked_at = 0;
    for process in std::fs::read_dir("/proc").ok()?.flatten() {
        let Some(pid) = process.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        let Ok(files) = std::fs::read_dir(process.path().join("fd")) else { continue };
        for file in files.flatten() {
            looked_at += 1;
            if looked_at > FILES {
                return None;
            }
            let target = std::fs::read_link(file.path()).unwrap_or_default();
            if wanted.iter().any(|wanted| target.as_os_str() == wanted.as_str()) {
                return Some(describe(pid));
            }
        }
    }
    None
}

/// Describes a process by its name and number.
pub(super) fn describe(pid: u32) -> String {
    let name = std::fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
    let name = String::from_utf8_lossy(&name);
    match name.trim_end() {
        "" => format!("pid {pid}"),
        // A process chooses its name.
        name => format!("{} (pid {pid})", name.escape_debug()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_kernel_are_read() {
        let line =
            "  0: 0100007F:0050 00000000:0000 0A 00000000:00000000 00:00000000 00000000 1000 0 4711 1 0";
        let expected = ((IpAddr::from([127, 0, 0, 1]), 80), 4711);
        assert_eq!(socket(line), Some(expected).filter(|_| cfg!(target_endian = "little")));
        let v6 = "  1: 00000000000000000000000000000000:1F90 0:0000 0A 0:0 00:0 0 0 0 9 1";
        assert_eq!(socket(v6), Some(((Ipv6Addr::UNSPECIFIED.into(), 8080), 9)));
        assert_eq!(socket("  sl  local_address rem_address   st tx_queue rx_queue tr tm->when"), None);
        assert_eq!(socket(""), None);
    }
}
