//! Maps: what a program shares with this process.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;

use crate::{Words, syscall};

/// Bytes of values that are read at once.
const BATCH: usize = 256 << 10;

/// Kinds of maps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Values by keys of any form.
    Hash = 1,
    /// Values by index, all there from the start.
    Array = 2,
    /// The same, one for each CPU.
    PerCpuArray = 6,
    /// Values by prefixes: a key is a number of bits (`u32`), then bits in network order. Lookups find the longest.
    LpmTrie = 11,
    /// Interfaces by number, to send packets to.
    DevMapHash = 25,
    /// AF_XDP sockets by queue.
    XskMap = 17,
}

/// What a map is like.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shape {
    /// Kind.
    pub kind: Kind,
    /// Bytes of a key.
    pub key: u32,
    /// Bytes of a value.
    pub value: u32,
    /// Most entries.
    pub entries: u32,
    /// Name, of which the kernel keeps 15 letters.
    pub name: String,
    /// Whether this process can have an array's memory ([`Map::words`]).
    pub is_shared: bool,
}

impl Shape {
    /// A map whose memory stays the kernel's.
    pub fn new(kind: Kind, name: &str, key: u32, value: u32, entries: u32) -> Self {
        Self { kind, key, value, entries, name: name.into(), is_shared: false }
    }
}

/// A map.
#[derive(Debug)]
pub struct Map {
    fd: OwnedFd,
    shape: Shape,
    /// Bytes that a lookup writes.
    found: usize,
}

impl Map {
    /// Makes a map. Its memory grows with its entries, except for arrays.
    ///
    /// # Errors
    /// The kernel's: too large, not allowed. [`Errno::NOENT`] if it does not say how many CPUs there may be (without
    /// `/sys`).
    pub fn new(shape: Shape) -> Result<Self, Errno> {
        let fd = syscall::map_create(&shape)?;
        let found = match shape.kind {
            // The kernel writes a value for each CPU that there may ever be, at a multiple of 8 bytes.
            Kind::PerCpuArray => shape.value.next_multiple_of(8) as usize * possible_cpus()?,
            _ => shape.value as usize,
        };
        Ok(Self { fd, shape, found })
    }

    /// What it is like.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Its descriptor.
    pub fn raw(&self) -> i32 {
        self.fd.as_raw_fd()
    }

    /// Enters a value or replaces it: packets see one or the other, except in arrays. In an array for each CPU, `value`
    /// has one for each.
    ///
    /// # Errors
    /// [`Errno::INVAL`] for a key or a value of another size; the kernel's: the map is full.
    pub fn update(&self, key: &[u8], value: &[u8]) -> Result<(), Errno> {
        if key.len() != self.shape.key as usize || value.len() != self.found {
            return Err(Errno::INVAL);
        }
        syscall::map_update(self.fd.as_fd(), key, value)
    }

    /// Removes a value; true if there was one.
    ///
    /// # Errors
    /// [`Errno::INVAL`] for a key of another size.
    pub fn remove(&self, key: &[u8]) -> Result<bool, Errno> {
        if key.len() != self.shape.key as usize {
            return Err(Errno::INVAL);
        }
        match syscall::map_remove(self.fd.as_fd(), key) {
            Ok(()) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(errno) => Err(errno),
        }
    }

    /// The value of a key; in an array for each CPU, those of all CPUs one after another.
    ///
    /// # Errors
    /// [`Errno::INVAL`] for a key of another size, [`Errno::NOENT`] for one that is not there.
    pub fn get(&self, key: &[u8]) -> Result<Vec<u8>, Errno> {
        if key.len() != self.shape.key as usize {
            return Err(Errno::INVAL);
        }
        let mut value = vec![0; self.found];
        syscall::map_lookup(self.fd.as_fd(), key, &mut value)?;
        Ok(value)
    }

    /// The values of a key of an array for each CPU.
    ///
    /// # Errors
    /// As [`Map::get`].
    pub fn get_each(&self, key: &[u8]) -> Result<Vec<Vec<u8>>, Errno> {
        let all = self.get(key)?;
        let size = self.shape.value.next_multiple_of(8).max(8) as usize;
        Ok(all
            .chunks(size)
            .map(|value| value.iter().copied().take(self.shape.value as usize).collect())
            .collect())
    }

    /// Calls `each` with every index of an array and its value, those of all CPUs one after another for an array for each CPU
    /// (Linux 5.13).
    ///
    /// # Errors
    /// The kernel's; [`Errno::INVAL`] for other kinds.
    pub fn for_each(&self, mut each: impl FnMut(u32, &[u8])) -> Result<(), Errno> {
        if !matches!(self.shape.kind, Kind::Array | Kind::PerCpuArray) {
            return Err(Errno::INVAL);
        }
        let size = self.found;
        let batch = (BATCH / size.max(1)).clamp(1, self.shape.entries as usize);
        let mut values = vec![0; batch * size];
        let mut from = 0;
        while from < self.shape.entries {
            let found = syscall::map_lookup_batch(self.fd.as_fd(), from, size, &mut values)?;
            if found == 0 {
                break;
            }
            for (index, value) in (from..).zip(values.chunks(size).take(found)) {
                each(index, value);
            }
            from += found as u32;
        }
        Ok(())
    }

    /// The memory of an array, whose values are words, which it shares with programs.
    ///
    /// # Errors
    /// [`Errno::INVAL`] for other maps, and those that are not shared; the kernel's.
    pub fn words(&self) -> Result<Words, Errno> {
        if self.shape.kind != Kind::Array || !self.shape.value.is_multiple_of(8) || !self.shape.is_shared {
            return Err(Errno::INVAL);
        }
        Words::map(self.fd.as_fd(), self.shape.entries as usize * (self.shape.value / 8) as usize)
    }

    /// Enters the same value for each CPU.
    ///
    /// # Errors
    /// As [`Map::update`].
    pub fn update_each(&self, key: &[u8], value: &[u8]) -> Result<(), Errno> {
        let mut one = value.to_vec();
        one.resize(self.shape.value.next_multiple_of(8) as usize, 0);
        self.update(key, &one.repeat(possible_cpus()?))
    }
}

impl AsFd for Map {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// CPUs that there may ever be, for which maps with a value for each have room.
fn possible_cpus() -> Result<usize, Errno> {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/possible").map_err(|_| Errno::NOENT)?;
    count(text.trim()).ok_or(Errno::NOENT)
}

/// The number of numbers in a list such as `0,2-3`.
fn count(list: &str) -> Option<usize> {
    let of = |part: &str| {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        let (from, to) = (from.parse::<usize>().ok()?, to.parse::<usize>().ok()?);
        to.checked_sub(from).map(|more| more + 1)
    };
    list.split(',').map(of).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpus_are_counted_in_lists_of_ranges() {
        assert_eq!((count("0"), count("0-7"), count("0,2-3")), (Some(1), Some(8), Some(3)));
        assert_eq!((count(""), count("3-1"), count("a")), (None, None, None));
    }
}
