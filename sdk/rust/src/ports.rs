//! Ports by name.

use crate::{host, Batch, Plain};

/// The longest name of a port.
const LONGEST: usize = 64;
/// Returned while the ports are changing: ask again.
const ASK_AGAIN: i32 = -2;

/// A port by name. Its index is looked up again whenever ports are added or removed. Each worker needs its own, in
/// [`Batch::state_of`], where the name is initially empty, which matches no port.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct PortName {
    /// Version of the ports at the last lookup.
    version: u64,
    /// The index plus 1; 0 if there is no such port.
    found: u32,
    len: u32,
    name: [u8; LONGEST],
}

// SAFETY: it consists of numbers.
unsafe impl Plain for PortName {}

impl PortName {
    /// A port of this name; `None` if the name is empty or too long.
    pub fn new(name: &str) -> Option<PortName> {
        let mut port = PortName { version: 0, found: 0, len: name.len() as u32, name: [0; LONGEST] };
        port.name.get_mut(..name.len()).filter(|room| !room.is_empty())?.copy_from_slice(name.as_bytes());
        Some(port)
    }

    /// The name.
    pub fn name(&self) -> &str {
        core::str::from_utf8(&self.name[..LONGEST.min(self.len as usize)]).unwrap_or("")
    }

    /// The port's index; `None` while the bridge has no such port.
    pub fn index(&mut self, batch: &Batch) -> Option<u16> {
        if self.version != batch.head().ports_version {
            let name = self.name();
            // SAFETY: `head` is the batch of the current call.
            let index = unsafe { host::msw_port_index(batch.head, name.as_ptr(), name.len() as u32) };
            if index != ASK_AGAIN {
                self.found = (index + 1).max(0) as u32;
                self.version = batch.head().ports_version;
            }
        }
        self.found.checked_sub(1).map(|index| index as u16)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_1_to_64_bytes() {
        assert_eq!(PortName::new("vm1").unwrap().name(), "vm1");
        assert!(PortName::new("").is_none());
        let long = [b'x'; LONGEST + 1];
        let long = core::str::from_utf8(&long).unwrap();
        assert!(PortName::new(long).is_none());
        assert_eq!(PortName::new(&long[1..]).unwrap().name().len(), LONGEST);
    }
}
