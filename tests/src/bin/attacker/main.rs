//! A client that attacks the switch until it is killed: `attacker ATTACK memif|vhost-user FOLDER [baseline]`.
//!
//! FOLDER is the daemon's. The attacker has the port `bad` and a partner on the port `feed`. With `baseline` it does
//! everything except the attack itself. It prints one line at the start of each round.

mod client;
mod leaks;
mod requests;
mod setup;
mod slow_close;
mod stalled;
mod stations;
mod truncated;
mod wakeups;

use e2e::impact::pin;
use e2e::{Error, Result};

use requests::{Change, Flood, change_repeatedly, flood};
use setup::{Kind, Setup};
use slow_close::{Passed, pass_lingering};
use stalled::{Punch, punch_buffers};
use stations::Sources;
use wakeups::{End, watch_eventfd};

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let usage = || Error::new("usage: attacker ATTACK memif|vhost-user FOLDER [baseline]");
    let [attack, kind, folder, rest @ ..] = &arguments[..] else { return Err(usage()) };
    let kind = match kind.as_str() {
        "memif" => Kind::Memif,
        "vhost-user" => Kind::VhostUser,
        _ => return Err(usage()),
    };
    let setup =
        Setup { folder: folder.clone(), kind, baseline: rest.first().is_some_and(|word| word == "baseline") };
    pin();
    match attack.as_str() {
        "punch" => punch_buffers(&setup, Punch::default()),
        "punch-starved" => punch_buffers(&setup, Punch { starved: true, ..Punch::default() }),
        "punch-huge" => punch_buffers(&setup, Punch { huge: true, ..Punch::default() }),
        "punch-rings" => punch_buffers(&setup, Punch { rings: true, ..Punch::default() }),
        "punch-sent" => punch_buffers(&setup, Punch { sending: true, ..Punch::default() }),
        "punch-pieces" => punch_buffers(&setup, Punch { pieces: 64, ..Punch::default() }),
        "linger" => pass_lingering(&setup, Passed::Alone),
        "linger-many" => pass_lingering(&setup, Passed::Many),
        "linger-nested" => pass_lingering(&setup, Passed::Nested),
        "linger-unread" => pass_lingering(&setup, Passed::Unread),
        "watch-call" => watch_eventfd(&setup, End::Call, 1),
        "watch-kick" => watch_eventfd(&setup, End::Kick, 1),
        "watch-nested" => watch_eventfd(&setup, End::Call, 3),
        "await-call" => wakeups::wait_with_threads(&setup),
        "kick" => wakeups::flood_kicks(&setup),
        "keep-rings" => leaks::rings(&setup),
        "reconnect" => leaks::reconnect(&setup),
        "keep-regions" => leaks::regions(&setup),
        "keep-silent" => leaks::silent(&setup),
        "truncate" => truncated::truncate_touched(&setup, false),
        "truncate-huge" => truncated::truncate_touched(&setup, true),
        "truncate-again" => truncated::truncate_repeatedly(&setup, false),
        "truncate-again-huge" => truncated::truncate_repeatedly(&setup, true),
        "empty" => truncated::punch_while_sending(&setup),
        "sparse" => truncated::touch_sparse(&setup, 2 << 30),
        "stations" => stations::flood(&setup, Sources::Random),
        "stations-rising" => stations::flood(&setup, Sources::Rising),
        "stations-tagged" => stations::flood(&setup, Sources::Tagged),
        "stations-groups" => stations::flood(&setup, Sources::Groups),
        "restart" => change_repeatedly(&setup, Change::Restart),
        "toggle" => change_repeatedly(&setup, Change::Toggle),
        "log" => change_repeatedly(&setup, Change::Log),
        "memory" => change_repeatedly(&setup, Change::Memory),
        "flood" => flood(&setup, Flood::Unread),
        "flood-bytes" => flood(&setup, Flood::Bytes),
        "flood-promises" => flood(&setup, Flood::Promises),
        "flood-noise" => flood(&setup, Flood::Noise),
        _ => Err(Error(format!("unknown attack `{attack}`"))),
    }
}
