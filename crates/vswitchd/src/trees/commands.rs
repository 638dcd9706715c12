//! Commands of spanning trees (ovs-vswitchd(8)): `stp/show`, `stp/tcn`, `rstp/show` and `rstp/tcn`.

use std::sync::Arc;

use spanning_tree::Protocol;
use unixctl::{Commands, Reply};

use super::{Running, Trees, now};

/// Adds the commands.
pub(crate) fn add(commands: &mut Commands, trees: &Arc<Trees>) {
    for (show, change, protocol, missing) in [
        ("stp/show", "stp/tcn", Protocol::Stp, "no such stp object"),
        ("rstp/show", "rstp/tcn", Protocol::Rstp, "No such RSTP object"),
    ] {
        let subject = trees.clone();
        commands.add(show, "[bridge]", 0..=1, move |words| {
            // Links may have changed a moment ago.
            subject.run();
            subject.each(protocol, words.first(), missing, |name, running| running.tree.show(name))
        });
        let subject = trees.clone();
        commands.add(change, "[bridge]", 0..=1, move |words| {
            subject.each(protocol, words.first(), missing, |_, running| {
                running.tree.change_topology(now());
                String::new()
            })?;
            subject.run();
            Ok("OK".into())
        });
    }
}

impl Trees {
    /// Does something with all bridges that run a protocol, or with the one called `name`; returns the texts.
    fn each(
        &self,
        protocol: Protocol,
        name: Option<&String>,
        missing: &str,
        act: impl Fn(&str, &mut Running) -> String,
    ) -> Reply {
        let mut bridges = self.bridges();
        let mut found = bridges.iter_mut().filter(|(other, running)| {
            running.tree.protocol() == protocol && name.is_none_or(|name| name == *other)
        });
        match found.next() {
            None if name.is_some() => Err(missing.into()),
            first => Ok(first.into_iter().chain(found).map(|(name, running)| act(name, running)).collect()),
        }
    }
}
