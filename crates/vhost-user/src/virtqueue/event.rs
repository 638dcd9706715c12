//! Signals requested by entry index, and positions in a packed ring.

use super::layout::{EVENT_DESCRIPTOR, EVENT_DISABLE, WRAP};

/// Whether a side that moved its index from `old` to `new` passed the entry `event`, at which the other side wants a
/// signal (virtio 1.2 §2.7.10). Indices are free-running.
///
/// ```
/// use vhost_user::virtqueue::need_event;
/// assert!(need_event(7, 8, 7)); // entry 7 was just made
/// assert!(!need_event(8, 8, 7)); // entry 8 was not
/// ```
#[inline]
pub fn need_event(event: u16, new: u16, old: u16) -> bool {
    new.wrapping_sub(event).wrapping_sub(1) < new.wrapping_sub(old)
}

/// A position in a packed ring: a slot, and a wrap counter that flips with every lap.
///
/// Invariant: the slot is within the ring, whose size every method takes as an argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Position {
    pub(crate) slot: u16,
    pub(crate) wrap: bool,
}

impl Position {
    /// Decodes 15 bits of slot and one of wrap counter; `None` if the ring has no such slot.
    pub(crate) fn decode(bits: u16, size: u16) -> Option<Position> {
        let slot = bits & !WRAP;
        (slot < size).then_some(Position { slot, wrap: bits & WRAP != 0 })
    }

    #[inline]
    pub(crate) fn encode(self) -> u16 {
        self.slot | if self.wrap { WRAP } else { 0 }
    }

    /// Returns the position `slots` later; at most one lap.
    #[inline]
    pub(crate) fn advanced(self, slots: u16, size: u16) -> Position {
        // Both are at most 2^15: no overflow in 32 bits.
        let slot = u32::from(self.slot) + u32::from(slots.min(size));
        match slot.checked_sub(size.into()) {
            Some(slot) => Position { slot: slot as u16, wrap: !self.wrap },
            None => Position { slot: slot as u16, wrap: self.wrap },
        }
    }

    /// Returns the position `slots` earlier; at most one lap.
    pub(crate) fn retreated(self, slots: u16, size: u16) -> Position {
        let slots = slots.min(size);
        match self.slot.checked_sub(slots) {
            Some(slot) => Position { slot, wrap: self.wrap },
            None => Position { slot: self.slot + (size - slots), wrap: !self.wrap },
        }
    }

    /// Returns the number of slots since `earlier`, or `None` if they cannot be that far apart.
    pub(crate) fn distance_from(self, earlier: Position, size: u16) -> Option<u16> {
        if self.wrap == earlier.wrap {
            self.slot.checked_sub(earlier.slot)
        } else {
            let distance = u32::from(self.slot) + u32::from(size) - u32::from(earlier.slot);
            (distance <= size.into()).then_some(distance as u16)
        }
    }
}

/// One side's event suppression in a packed ring: 4 bytes, read and written at once (virtio 1.2 §2.8.10).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Suppression(pub(crate) u32);

impl Suppression {
    /// Signal always.
    pub(crate) const ENABLE: Suppression = Suppression(0);
    /// Never signal.
    pub(crate) const DISABLE: Suppression = Suppression((EVENT_DISABLE as u32) << 16);

    /// Signal once the descriptor at `position` is made available, or used.
    #[inline]
    pub(crate) fn at(position: Position) -> Suppression {
        Suppression(u32::from(position.encode()) | u32::from(EVENT_DESCRIPTOR) << 16)
    }

    /// Returns the position at which the side wants a signal, if it names one.
    pub(crate) fn position(self, size: u16) -> Option<Position> {
        let names_one = (self.0 >> 16) as u16 == EVENT_DESCRIPTOR;
        Position::decode(self.0 as u16, size).filter(|_| names_one)
    }

    /// Whether a side that moved the last `moved` slots to `now` should signal.
    #[inline]
    pub(crate) fn wants(self, event_idx: bool, now: Position, moved: u32, size: u16) -> bool {
        match (self.0 >> 16) as u16 {
            EVENT_DISABLE => false,
            EVENT_DESCRIPTOR if event_idx => {
                let (slot, wrap) = (self.0 as u16 & !WRAP, self.0 as u16 & WRAP != 0);
                // Slot and counter name a position once in two laps. `ago` counts the slots since it was last passed.
                let (slot, lap) = (i64::from(slot), i64::from(size));
                let ago = i64::from(now.slot) - slot + if wrap == now.wrap { 0 } else { lap };
                let ago = if ago > 0 { ago } else { ago + 2 * lap };
                ago <= i64::from(moved)
            }
            _ => true,
        }
    }
}
