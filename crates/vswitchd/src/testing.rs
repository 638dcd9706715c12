//! Commands of tests, with `--enable-dummy` only: frames into dummies, their links and streams, and the clock.

use std::sync::Arc;
use std::time::Duration;

use control::desired::Desired;
use ports::dummy::{Dummies, StreamState};
use unixctl::{Commands, Reply};

use crate::bonds::Bonds;
use crate::monitor::Monitor;
use crate::pulse::Pulse;
use crate::seen::Seen;
use crate::trees::Trees;

/// Steps of one `time/warp` at most: after each, all bridges are looked at.
const MOST_STEPS: u64 = 100_000;

/// Time for what frames cause.
const LIMIT: Duration = Duration::from_secs(5);

/// Adds the commands.
pub(crate) fn add(
    commands: &mut Commands,
    desired: &Arc<Desired>,
    (bonds, trees, monitor): (&Arc<Bonds>, &Arc<Trees>, &Arc<Monitor>),
    pulse: &Arc<Pulse>,
    seen: &Seen,
) {
    let dummies = desired.state().dummies().clone();
    let (subject, its, seen) = (dummies.clone(), desired.clone(), seen.clone());
    let usage = "name [--qid queue_id] packet|flow [--len packet_len]";
    commands.add("netdev-dummy/receive", usage, 2..=usize::MAX, move |words| {
        receive(&subject, &its, &seen, words)
    });
    let subject = dummies.clone();
    commands.add("netdev-dummy/set-admin-state", "[netdev] up|down", 1..=2, move |words| {
        set_admin_state(&subject, words)
    });
    commands.add("netdev-dummy/conn-state", "[netdev]", 0..=1, move |words| {
        Ok(conn_state(&dummies, words.first()))
    });
    commands.add("time/stop", "", 0..=0, |_| {
        ofagent::clock::stop();
        fabric::clock::stop_seconds();
        Ok(String::new())
    });
    let (bonds, trees, monitor) = (bonds.clone(), trees.clone(), monitor.clone());
    let (subject, pulse) = (desired.clone(), pulse.clone());
    commands.add("time/warp", "[large_msecs] msecs", 1..=2, move |words| {
        let done = warp(&subject, (&bonds, &trees, &monitor), words)?;
        pulse.request();
        Ok(done)
    });
}

fn receive(dummies: &Dummies, desired: &Desired, seen: &Seen, words: &[String]) -> Reply {
    let (name, mut rest) = words.split_first().ok_or("expected a name")?;
    if let [option, queue, others @ ..] = rest
        && option == "--qid"
    {
        if queue != "0" {
            return Err("bad rx queue id.".into());
        }
        rest = others;
    }
    let mut frames = Vec::new();
    while let [text, others @ ..] = rest {
        rest = others;
        let mut length = None;
        if let [option, value, others @ ..] = rest
            && option == "--len"
        {
            length = Some(value.parse::<usize>().map_err(|_| "too small packet len")?);
            rest = others;
        }
        frames.push(match control::hex::parse(text) {
            Ok(bytes) => bytes,
            Err(_) => crate::odp::packet(text, length)?,
        });
    }
    for frame in frames {
        seen.note(name, &frame);
        dummies.receive(name, vec![frame]).map_err(|error| error.to_string())?;
        // What flows learn from it is there for the next, and when the command answers.
        desired.state().settle(LIMIT);
    }
    Ok(String::new())
}

fn set_admin_state(dummies: &Dummies, words: &[String]) -> Reply {
    let (state, name) = words.split_last().ok_or("expected `up` or `down`")?;
    let up = match state.to_ascii_lowercase().as_str() {
        "up" => true,
        "down" => false,
        _ => return Err("Invalid Admin State".into()),
    };
    let name = name.first().map(String::as_str);
    dummies.set_up(name, up).map_err(|_| "Unknown Dummy Interface".to_owned())?;
    Ok("OK".into())
}

fn conn_state(dummies: &Dummies, name: Option<&String>) -> String {
    let states = match name {
        Some(name) => vec![(name.clone(), dummies.stream_state(name))],
        None => dummies.stream_states(),
    };
    let line = |(name, state): (String, StreamState)| {
        let state = match state {
            StreamState::None => "unknown",
            StreamState::Connected => "connected",
            StreamState::Disconnected => "disconnected",
        };
        format!("{name}: {state}\n")
    };
    states.into_iter().map(line).collect()
}

/// Advances the stopped clocks in steps, and looks at what is due after each of them.
fn warp(desired: &Desired, (bonds, trees, monitor): (&Bonds, &Trees, &Monitor), words: &[String]) -> Reply {
    let number = |text: &String| text.parse::<u64>().ok().filter(|number| *number > 0);
    let (total, step) = match words {
        [total, step] => (number(total), number(step)),
        // A single number is one step.
        [total] => (number(total), number(total)),
        _ => (None, None),
    };
    let (Some(mut left), Some(step)) = (total, step) else { return Err("invalid MSECS".into()) };
    if left.div_ceil(step) > MOST_STEPS {
        return Err(format!("more than {MOST_STEPS} steps"));
    }
    while left > 0 {
        let next = step.min(left);
        left -= next;
        ofagent::clock::warp(Duration::from_millis(next));
        fabric::clock::warp_seconds(Duration::from_millis(next));
        desired.state().look_at_clock();
        bonds.step();
        trees.step();
        monitor.advance();
    }
    Ok("warped".into())
}
