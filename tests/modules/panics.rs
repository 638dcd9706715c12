//! Panics in a function of its own: at packets, in a command, and at its start.
#![cfg_attr(target_arch = "wasm32", no_std)]
use mswitch_module::{module, Batch};

const FEW: [u8; 3] = [1, 2, 3];

#[inline(never)]
fn look_up(place: usize) -> u8 {
    FEW[place]
}

fn forward(batch: &mut Batch) {
    let place = batch.len() * 10;
    batch.count(usize::from(look_up(place)), 1);
}

fn start(batch: &mut Batch) -> Result<(), &'static str> {
    if batch.number(0) == Some(1) {
        batch.table(3);
    }
    Ok(())
}

fn command(batch: &mut Batch, _: u32) -> i32 {
    let text = look_up(batch.arguments().len());
    batch.count(usize::from(text), 1);
    0
}

module! {
    describe: r#"{"name": "panics", "summary": "for tests",
        "params": [{"name": "early", "type": "switch", "default": "off", "help": "panics at the start"}],
        "counters": [{"name": "found", "help": "numbers found"}],
        "commands": [{"name": "find", "usage": "TEXT", "help": "finds a number"}]}"#,
    forward: forward,
    start: start,
    command: command,
}
