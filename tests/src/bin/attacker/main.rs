//! A client that attacks the switch until somebody kills it: `attacker ATTACK memif|vhost-user FOLDER [calm]`.
//!
//! FOLDER is the daemon's; the attacker has the port `bad` and a partner on the port `feed`. With `calm` it does all but the
//! deed. Each time it begins the deed it says so on its standard output, a line each.

mod plug;
mod scene;
mod stalled;

use e2e::judges::pin;
use e2e::{Error, Result};

use scene::{Kind, Scene};
use stalled::{Punch, punched};

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let usage = || Error::new("usage: attacker ATTACK memif|vhost-user FOLDER [calm]");
    let [attack, kind, folder, rest @ ..] = &arguments[..] else { return Err(usage()) };
    let kind = match kind.as_str() {
        "memif" => Kind::Memif,
        "vhost-user" => Kind::VhostUser,
        _ => return Err(usage()),
    };
    let scene = Scene { folder: folder.clone(), kind, calm: rest.first().is_some_and(|word| word == "calm") };
    pin();
    match attack.as_str() {
        "punch" => punched(&scene, Punch::default()),
        "punch-starved" => punched(&scene, Punch { starved: true, ..Punch::default() }),
        "punch-huge" => punched(&scene, Punch { huge: true, ..Punch::default() }),
        "punch-rings" => punched(&scene, Punch { rings: true, ..Punch::default() }),
        "punch-sent" => punched(&scene, Punch { sending: true, ..Punch::default() }),
        "punch-pieces" => punched(&scene, Punch { pieces: 64, ..Punch::default() }),
        _ => Err(Error(format!("no attack is called {attack}"))),
    }
}
