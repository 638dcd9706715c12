//! Packets from non-existent stations, at wire rate.

use e2e::Result;
use fastrand::Rng;

use crate::client::NEEDED;
use crate::setup::Setup;

/// Source addresses.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sources {
    /// Random.
    Random,
    /// In ascending order.
    Rising,
    /// Random, in random VLANs.
    Tagged,
    /// Random group addresses, which are invalid as sources.
    Groups,
}

/// Sends each packet from another address.
pub(crate) fn flood(setup: &Setup, sources: Sources) -> Result<()> {
    setup.feed()?;
    let (mut random, mut next) = (Rng::with_seed(1), 0u64);
    loop {
        let mut client = setup.connect(NEEDED, false)?;
        let mut packet = setup.frame([2, 0, 0, 0, 0x0b, 9], 64);
        if sources == Sources::Tagged {
            packet.splice(12..14, [0x81, 0, 0, 0, 0x88, 0xb5]);
        }
        while !client.is_over() {
            setup.round(|| {
                let mut sent = 0;
                while sent < 100_000 && !client.is_over() {
                    for _ in 0..64 {
                        next += 1;
                        let address = match sources {
                            // An unused range.
                            Sources::Rising => 1 << 32 | next,
                            _ => random.u64(..),
                        };
                        let bits = if sources == Sources::Groups { 3 } else { 2 };
                        if let Some(source) = packet.get_mut(6..12) {
                            source.copy_from_slice(&address.to_be_bytes()[2..]);
                            source[0] = source[0] & 0xfc | bits;
                        }
                        if sources == Sources::Tagged
                            && let Some(tag) = packet.get_mut(14..16)
                        {
                            tag.copy_from_slice(&random.u16(1..4095).to_be_bytes());
                        }
                        sent += u32::from(client.send(&packet)?);
                    }
                    client.serve()?;
                    std::thread::yield_now();
                }
                Ok(())
            })?;
        }
    }
}
