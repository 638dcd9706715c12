//! Stations that do not exist, as many as the wire carries.

use e2e::Result;
use fastrand::Rng;

use crate::plug::NEEDED;
use crate::scene::Scene;

/// Which addresses are sent from.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sources {
    /// Any.
    Random,
    /// One after another.
    Rising,
    /// Any, in any VLAN.
    Tagged,
    /// Groups, which no station can be.
    Groups,
}

/// Sends from another address each time.
pub(crate) fn flood(scene: &Scene, sources: Sources) -> Result<()> {
    scene.feed()?;
    let (mut random, mut next) = (Rng::with_seed(1), 0u64);
    loop {
        let mut plug = scene.plug(NEEDED, false)?;
        let mut packet = scene.frame([2, 0, 0, 0, 0x0b, 9], 64);
        if sources == Sources::Tagged {
            packet.splice(12..14, [0x81, 0, 0, 0, 0x88, 0xb5]);
        }
        while !plug.is_over() {
            scene.deed(|| {
                let mut sent = 0;
                while sent < 100_000 && !plug.is_over() {
                    for _ in 0..64 {
                        next += 1;
                        let address = match sources {
                            // Nobody else's.
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
                        sent += u32::from(plug.send(&packet)?);
                    }
                    plug.serve()?;
                    std::thread::yield_now();
                }
                Ok(())
            })?;
        }
    }
}
