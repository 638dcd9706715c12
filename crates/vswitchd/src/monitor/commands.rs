//! Commands of `ovs-appctl`: `bfd/show`, `bfd/set-forwarding`, `cfm/show` and `cfm/set-fault`.

use std::fmt::Write;
use std::sync::Arc;

use unixctl::{Commands, Reply};

use super::link::Link;
use super::{Monitor, now};

/// Adds the commands.
pub(crate) fn add(commands: &mut Commands, monitor: &Arc<Monitor>) {
    let subject = monitor.clone();
    commands.add("bfd/show", "[interface]", 0..=1, move |words| show_bfd(&subject, words.first()));
    let subject = monitor.clone();
    commands.add("bfd/set-forwarding", "[interface] normal|false|true", 1..=2, move |words| {
        force(&subject, words, "no such BFD object", |link, forced| {
            link.bfd.as_mut().map(|session| session.force(forced)).is_some()
        })
    });
    let subject = monitor.clone();
    commands.add("cfm/show", "[interface]", 0..=1, move |words| show_cfm(&subject, words.first()));
    let subject = monitor.clone();
    commands.add("cfm/set-fault", "[interface] normal|false|true", 1..=2, move |words| {
        force(&subject, words, "no such CFM object", |link, forced| {
            link.cfm.as_mut().map(|point| point.force(forced)).is_some()
        })
    });
}

fn show_bfd(monitor: &Monitor, name: Option<&String>) -> Reply {
    let mut links = monitor.lock();
    let mut text = String::new();
    let mut any = false;
    for ((_, port), link) in
        links.all.iter_mut().filter(|((_, port), _)| name.is_none_or(|name| name == port))
    {
        // Data that came since the last look counts.
        let at = monitor.moment(link);
        link.look_for_data(at);
        let Some(session) = &mut link.bfd else { continue };
        any = true;
        if name.is_none() {
            // Writing to a string does not fail.
            let _ = writeln!(text, "---- {port} ----");
        }
        text += &session.show(now());
    }
    drop(links);
    monitor.tell();
    if any || name.is_none() { Ok(text) } else { Err("no such bfd object".into()) }
}

fn show_cfm(monitor: &Monitor, name: Option<&String>) -> Reply {
    let links = monitor.lock();
    let chosen = links.all.iter().filter(|((_, port), _)| name.is_none_or(|name| name == port));
    let shown: Vec<_> =
        chosen.filter_map(|((_, port), link)| Some(link.cfm.as_ref()?.show(port, now()))).collect();
    if shown.is_empty() && name.is_some() {
        return Err("no such CFM object".into());
    }
    Ok(shown.concat())
}

/// Forces the result of a port, or of all.
fn force(
    monitor: &Monitor,
    words: &[String],
    missing: &str,
    set: impl Fn(&mut Link, Option<bool>) -> bool,
) -> Reply {
    let (text, name) = words.split_last().ok_or("expected `normal`, `false` or `true`")?;
    let forced = match text.to_ascii_lowercase().as_str() {
        "true" => Some(true),
        "false" => Some(false),
        "normal" => None,
        _ => return Err("unknown fault string".into()),
    };
    let name = name.first();
    let mut any = false;
    for (_, link) in monitor.lock().all.iter_mut().filter(|((_, it), _)| name.is_none_or(|name| name == it)) {
        any |= set(link, forced);
    }
    monitor.tell();
    if any || name.is_none() { Ok("OK".into()) } else { Err(missing.into()) }
}
