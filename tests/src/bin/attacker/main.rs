//! A client that attacks the switch until somebody kills it: `attacker ATTACK memif|vhost-user FOLDER [calm]`.
//!
//! FOLDER is the daemon's; the attacker has the port `bad` and a partner on the port `feed`. With `calm` it does all but the
//! deed. Each time it begins the deed it says so on its standard output, a line each.

mod closing;
mod kept;
mod plug;
mod scene;
mod stalled;
mod stations;
mod talk;
mod truncated;
mod wakeups;

use e2e::judges::pin;
use e2e::{Error, Result};

use closing::{Passed, lingering};
use scene::{Kind, Scene};
use stalled::{Punch, punched};
use stations::Sources;
use talk::{Change, Flood, changing, flooding};
use wakeups::{End, watched};

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
        "linger" => lingering(&scene, Passed::Alone),
        "linger-many" => lingering(&scene, Passed::Many),
        "linger-nested" => lingering(&scene, Passed::Nested),
        "linger-unread" => lingering(&scene, Passed::Unread),
        "watch-call" => watched(&scene, End::Call, 1),
        "watch-kick" => watched(&scene, End::Kick, 1),
        "watch-nested" => watched(&scene, End::Call, 3),
        "await-call" => wakeups::awaited(&scene),
        "kick" => wakeups::kicked(&scene),
        "keep-rings" => kept::rings(&scene),
        "reconnect" => kept::reconnect(&scene),
        "keep-regions" => kept::regions(&scene),
        "keep-silent" => kept::silent(&scene),
        "truncate" => truncated::swept(&scene, false),
        "truncate-huge" => truncated::swept(&scene, true),
        "truncate-again" => truncated::truncated(&scene, false),
        "truncate-again-huge" => truncated::truncated(&scene, true),
        "empty" => truncated::emptied(&scene),
        "sparse" => truncated::sparse(&scene, 2 << 30),
        "stations" => stations::flood(&scene, Sources::Random),
        "stations-rising" => stations::flood(&scene, Sources::Rising),
        "stations-tagged" => stations::flood(&scene, Sources::Tagged),
        "stations-groups" => stations::flood(&scene, Sources::Groups),
        "restart" => changing(&scene, Change::Restart),
        "toggle" => changing(&scene, Change::Toggle),
        "log" => changing(&scene, Change::Log),
        "memory" => changing(&scene, Change::Memory),
        "flood" => flooding(&scene, Flood::Unread),
        "flood-bytes" => flooding(&scene, Flood::Bytes),
        "flood-promises" => flooding(&scene, Flood::Promises),
        "flood-noise" => flooding(&scene, Flood::Noise),
        _ => Err(Error(format!("no attack is called {attack}"))),
    }
}
