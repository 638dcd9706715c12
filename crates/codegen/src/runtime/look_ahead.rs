//! The first lookups of a batch, together: while one packet's entry comes from memory, others' are on their way, too.
//!
//! Specialised code has functions that only lay out the key of the first lookup, if that follows from the packet alone.
//! They run for all packets; the table is looked up for all keys; then packets run one after the other, and their first
//! lookup takes what was found.

use pipeline::env::Env;
use pipeline::interp::Received;
use pipeline::ir::TableId;

use super::{Effects, Worker};
use crate::form::WIDEST;
use crate::view::View;

/// Packets whose first lookups are done together.
const MOST: usize = 64;

/// Packets with the results of their first lookups.
pub(super) struct Batch<'r> {
    packets: [Option<Received<'r>>; MOST],
    found: [Option<(TableId, u32)>; MOST],
    keys: [u64; MOST * WIDEST],
}

impl Default for Batch<'_> {
    fn default() -> Self {
        Self { packets: [None; MOST], found: [None; MOST], keys: [0; MOST * WIDEST] }
    }
}

impl<'r> Batch<'r> {
    /// Takes the next packets; whether there are any.
    pub(super) fn fill(&mut self, packets: &mut impl Iterator<Item = Received<'r>>) -> bool {
        self.packets.fill_with(|| packets.next());
        self.found = [None; MOST];
        self.packets.iter().any(Option::is_some)
    }

    /// Packets, with the table of their first lookup and the handle found.
    pub(super) fn packets(&self) -> impl Iterator<Item = (&Received<'r>, Option<(TableId, u32)>)> {
        self.packets.iter().flatten().zip(self.found)
    }
}

impl Worker {
    /// Does the first lookups.
    pub(super) fn look_ahead(
        &mut self,
        view: &View,
        env: &mut dyn Env,
        batch: &mut Batch<'_>,
        effects: &mut Effects,
    ) {
        let Some(special) = &view.special else { return };
        let Some(id) = special.first_table else { return };
        let Some(table) = view.tables.get(id.index()) else { return };
        let words = table.reader.narrow.words;
        if words > WIDEST {
            return;
        }
        // One key behind the other, of the packets that begin with this table.
        let mut count = 0;
        for (received, found) in batch.packets.iter().flatten().zip(&mut batch.found) {
            if received.flags != special.flags {
                continue;
            }
            let (machine, _) = self.machine(view, env, received, effects);
            machine.begin();
            let mut key = [0; WIDEST];
            if machine.prepare(key.as_mut_ptr()) == Some(id) {
                *found = Some((id, 0));
                let to = batch.keys.iter_mut().skip(count * words);
                to.zip(key.iter().take(words)).for_each(|(to, word)| *to = *word);
                count += 1;
            }
        }
        let mut handles = [0; MOST];
        let (Some(keys), Some(handles)) = (batch.keys.get(..count * words), handles.get_mut(..count)) else {
            return;
        };
        table.reader.find_all(keys, handles);
        batch.found.iter_mut().flatten().zip(handles).for_each(|((_, handle), found)| *handle = *found);
    }
}
