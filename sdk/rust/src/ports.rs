//! Ports by name.

use crate::{host, Batch, Plain};

/// The longest name of a port.
const LONGEST: usize = 64;
/// The ports are changing at the moment.
const ASK_AGAIN: i32 = -2;

/// A port by name, whose index is looked up again whenever ports come or go. Each worker needs its own: in
/// [`Batch::state_of`], where it begins without a name, which no port has.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct PortName {
    /// That of the ports when the index was looked up.
    version: u64,
    /// The index, and one more.
    found: u32,
    len: u32,
    name: [u8; LONGEST],
}

// SAFETY: it consists of numbers.
unsafe impl Plain for PortName {}

impl PortName {
    /// The port of this name; `None` if no port can have it.
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
            // SAFETY: this is the batch that the switch called with.
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
    fn names_have_a_length() {
        assert_eq!(PortName::new("vm1").unwrap().name(), "vm1");
        assert!(PortName::new("").is_none());
        let long = [b'x'; LONGEST + 1];
        let long = core::str::from_utf8(&long).unwrap();
        assert!(PortName::new(long).is_none());
        assert_eq!(PortName::new(&long[1..]).unwrap().name().len(), LONGEST);
    }
}
