//! Packets that wait for a controller's decision: a ring of fixed size, where new ones replace the oldest.

/// A kept packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Kept {
    number: u32,
    pub(crate) in_port: u32,
    pub(crate) bytes: Vec<u8>,
}

/// The packets.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    kept: Vec<Option<Kept>>,
    next: u32,
}

impl Buffers {
    pub(crate) fn new(size: u32) -> Self {
        Buffers { kept: vec![None; size as usize], next: 0 }
    }

    /// Packets that can be kept.
    pub(crate) fn size(&self) -> u32 {
        self.kept.len() as u32
    }

    /// Packets that are kept.
    pub(crate) fn used(&self) -> usize {
        self.kept.iter().flatten().count()
    }

    /// Keeps a packet; returns its number.
    pub(crate) fn keep(&mut self, in_port: u32, bytes: &[u8]) -> Option<u32> {
        // Never the number that means that there is none.
        let number = self.next & 0x7fff_ffff;
        let at = (number as usize).checked_rem(self.kept.len())?;
        let place = self.kept.get_mut(at)?;
        *place = Some(Kept { number, in_port, bytes: bytes.to_vec() });
        self.next = number.wrapping_add(1);
        Some(number)
    }

    /// A packet that is there.
    pub(crate) fn get(&self, number: u32) -> Option<&Kept> {
        let at = (number as usize).checked_rem(self.kept.len())?;
        self.kept.get(at)?.as_ref().filter(|kept| kept.number == number)
    }

    /// Takes a packet out.
    pub(crate) fn take(&mut self, number: u32) -> Option<Kept> {
        let at = (number as usize).checked_rem(self.kept.len())?;
        let place = self.kept.get_mut(at)?;
        if place.as_ref()?.number == number { place.take() } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_is_replaced() {
        let mut buffers = Buffers::new(2);
        let numbers: Vec<_> = (0..3).filter_map(|n| buffers.keep(n, &[n as u8])).collect();
        assert_eq!(buffers.take(numbers[0]), None);
        assert_eq!(buffers.take(numbers[2]).unwrap().bytes, [2]);
        assert_eq!(buffers.take(numbers[2]), None);
        assert_eq!(Buffers::new(0).keep(0, &[]), None);
    }
}
