//! A module that follows a script (feature `fuzzing`), for bridges of fuzz targets.

use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

use fabric::SwitchLogic;
use logic::Values;

use crate::abi::{BatchHead, MAX_TABLES, Packet};
use crate::call::Host;
use crate::description::{self, Description};
use crate::module::{Because, Module, Runner, Setup, Source, head_of};
use crate::window::{Layout, Window};

/// The modules' actions: each takes its bytes from here, and does nothing when none are left.
pub type Script = Arc<Mutex<Vec<u8>>>;

/// A module that follows a script.
pub fn hostile(script: Script) -> Result<Arc<dyn SwitchLogic>, String> {
    let text = br#"{"name": "hostile", "summary": "", "state": 64, "retain": 3, "tables": [{"name": "t", "capacity": 4,
        "key": [["k", "u64"]], "value": [["port", "port"], ["at", "seconds"]]}]}"#;
    let description = description::parse(text)?;
    Module::new("hostile".into(), None, Box::new(Scripted { script, description }), Values::default())
        .map(|module| Arc::new(module) as Arc<dyn SwitchLogic>)
        .map_err(|error| error.to_string())
}

struct Scripted {
    script: Script,
    description: Description,
}

struct Follower {
    script: Script,
    window: Window,
    head: BatchHead,
    // The window's memory.
    _memory: Vec<u8>,
}

// SAFETY: the window is the follower's own.
unsafe impl Send for Follower {}

impl Source for Scripted {
    fn description(&self) -> &Description {
        &self.description
    }

    fn instance(&self, setup: &Setup) -> Result<Box<dyn Runner>, String> {
        let layout = Layout::new(self.description.state);
        // Zeroes from the system are not touched until they are used.
        let mut memory = vec![0u8; layout.len + 64];
        let skip = memory.as_ptr().align_offset(64);
        let at = NonNull::new(memory.as_mut_ptr().wrapping_add(skip)).ok_or("no memory")?;
        // SAFETY: so many bytes, aligned, which stay as long as the follower.
        let window = unsafe { Window::new(at, layout) };
        let head = head_of(&window, &self.description, setup.worker, [0; MAX_TABLES], 0);
        Ok(Box::new(Follower { script: self.script.clone(), window, head, _memory: memory }))
    }
}

impl Runner for Follower {
    fn window(&self) -> Window {
        self.window
    }

    fn head(&self) -> &BatchHead {
        &self.head
    }

    fn decide(&mut self, _: Because, host: &mut dyn Host) -> Result<u32, String> {
        let mut script = self.script.lock().unwrap_or_else(PoisonError::into_inner);
        let mut next = || script.pop().unwrap_or(0);
        let layout = *self.window.layout();
        for _ in 0..next() % 32 {
            let (what, i) = (next(), usize::from(next() % 16));
            let number = u32::from_le_bytes([next(), next(), next(), next()]);
            let near = self.window.packet(i);
            let header = near.header.wrapping_add_signed(i32::from(number as i8));
            match what % 16 {
                0 => self.window.set_packet(i, Packet { header, ..near }),
                1 => self.window.set_packet(i, Packet { header: number, ..near }),
                2 => self.window.set_packet(i, Packet { vlan: number as u16, ..near }),
                3 => self.window.set_packet(i, Packet { vlan: number as u16 % 8, ..near }),
                // An output, and the bytes behind it.
                4 => self
                    .window
                    .write(layout.outputs + i * 8, &[next(), next() % 2, next() % 4, 0, next() % 8, 0]),
                5 => self.window.write(near.header as usize + i, &number.to_le_bytes()),
                6 => _ = host.pull(u32::from(next() % 16), number % 1024),
                7 => _ = host.copy(u32::from(next() % 16)),
                8 => {
                    let bytes = [next(); 1600];
                    _ = host.originate(&bytes[..number as usize % 1600]);
                }
                9 => _ = host.read(u32::from(next() % 16), number % 4096, &mut [0; 700]),
                10 => _ = host.retain(u32::from(next() % 16)),
                11 => _ = host.release(u32::from(next() % 4)),
                12 => host.remark(u32::from(next() % 16), b"a {} b", u32::from(next()), number.into()),
                13 => _ = host.port(&number.to_le_bytes()),
                14 => self.window.write(layout.sets + i * 64, &number.to_le_bytes()),
                _ => self.window.write(number as usize % layout.len, &[next(), next(), next()]),
            }
        }
        match next() {
            255 => Err("it fails".into()),
            254 => Ok(u32::MAX),
            outputs => Ok(u32::from(outputs)),
        }
    }

    fn command(&mut self, _: u32, _: &mut dyn Host) -> Result<i32, String> {
        Ok(0)
    }
}
