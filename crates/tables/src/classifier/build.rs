//! Choice of the window of a cut.
//!
//! All windows are tried on a sample of the rules. The best is the one that leaves the least work: that of the child in
//! which a rule lies, on average, and that of the rest, which a lookup visits too. A window that does not separate the
//! rules is worth nothing; if none does, the rules become a leaf.

use super::node::{MAX_WIDTH, Slot, Stored, Window};
use super::{Classifier, LEAF, MAX_DEPTH, Path, SPREADS, node};
use crate::TableError;

/// Rules on which windows are tried.
const SAMPLE: usize = 160;

/// Estimates the cost of a lookup among `rules`, in visits of memory.
fn work(rules: f64) -> f64 {
    let leaf = LEAF as f64;
    match rules <= leaf {
        true => 1.0 + rules * 0.15,
        false => 1.0 + leaf * 0.15 + (rules / leaf).log2() * 0.5,
    }
}

/// Estimates the cost of a lookup with this window; `None` if it separates nothing.
fn cost<const N: usize>(window: Window, sample: &[&Stored<N>], scale: f64) -> Option<f64> {
    let mut counts = [0u16; 1 << MAX_WIDTH];
    let (mut rest, mut copies) = (0u32, 0u32);
    for stored in sample {
        let Some(children) = window.children(&stored.rule) else {
            rest += 1;
            continue;
        };
        for child in children {
            if let Some(count) = counts.get_mut(child as usize) {
                *count += 1;
            }
            copies += 1;
        }
    }
    let cut = sample.len() as u32 - rest;
    let largest = counts.iter().copied().max().unwrap_or(0);
    if cut == 0 || u32::from(largest) >= sample.len() as u32 {
        return None;
    }
    let pairs: u64 = counts.iter().map(|&count| u64::from(count) * u64::from(count.saturating_sub(1))).sum();
    let child = 1.0 + pairs as f64 / f64::from(copies) * scale;
    let rest_work = if rest == 0 { 0.0 } else { work(f64::from(rest) * scale) };
    let copied = f64::from(copies) / f64::from(cut) - 1.0;
    Some(work(child) + rest_work + copied * 0.5 + f64::from(window.fan_out()) / (sample.len() as f64 * scale))
}

fn choose<const N: usize>(rules: &[Stored<N>], most_spread: u32) -> Option<Window> {
    let step = rules.len().div_ceil(SAMPLE);
    let sample: Vec<&Stored<N>> = rules.iter().step_by(step).collect();
    let scale = rules.len() as f64 / sample.len() as f64;
    let widest = (rules.len().ilog2() + 1).min(MAX_WIDTH);
    let mut best: Option<(f64, Window)> = None;
    for word in 0..N {
        let used =
            sample.iter().filter_map(|stored| stored.rule.mask.get(word)).fold(0, |all, mask| all | mask);
        for width in 1..=widest {
            for shift in 0..=64 - width {
                if used >> shift & 1 == 0 || used >> (shift + width - 1) & 1 == 0 {
                    continue;
                }
                for spread in 0..=most_spread {
                    let window = Window { word: word as u32, shift, width, spread };
                    if let Some(cost) = cost(window, &sample, scale)
                        && best.is_none_or(|(least, _)| cost < least)
                    {
                        best = Some((cost, window));
                    }
                }
            }
        }
    }
    let (cost, window) = best?;
    // A leaf of moderate length may be the better choice.
    (cost < 1.0 + rules.len() as f64 * 0.15).then_some(window)
}

impl<const N: usize> Classifier<N> {
    /// Builds a tree of rules, at the end of a path.
    pub(super) fn build(&mut self, mut rules: Vec<Stored<N>>, path: Path) -> Result<Slot, TableError> {
        let highest = rules.iter().map(|stored| stored.rule.priority).max().unwrap_or(0);
        let window = match rules.len() > LEAF && path.depth < MAX_DEPTH {
            true => choose(&rules, u32::from(path.spreads < SPREADS)),
            false => None,
        };
        let Some(window) = window else {
            rules.sort_by_key(|stored| std::cmp::Reverse(stored.rule.priority));
            let entry = |stored: &Stored<N>| node::Entry { at: stored.at, priority: stored.rule.priority };
            return self.write_leaf(&rules.iter().map(entry).collect::<Vec<_>>());
        };
        let len = rules.len();
        let mut rest = Vec::new();
        let mut parts: Vec<Vec<Stored<N>>> = vec![Vec::new(); window.fan_out() as usize];
        for stored in rules {
            match window.children(&stored.rule) {
                Some(values) => values.for_each(|value| {
                    if let Some(part) = parts.get_mut(value as usize) {
                        part.push(stored);
                    }
                }),
                None => rest.push(stored),
            }
        }
        let rest = self.build_part(rest, len, path)?;
        let children: Result<Vec<Slot>, TableError> =
            parts.into_iter().map(|part| self.build_part(part, len, path.below(window.spread, 0))).collect();
        self.write_cut(window, len, highest, rest, &children?)
    }

    /// Builds a part of `whole` rules. If the sample deceived and the part is the whole, its depth says so twice, which
    /// bounds the attempts.
    fn build_part(&mut self, part: Vec<Stored<N>>, whole: usize, path: Path) -> Result<Slot, TableError> {
        let step = if part.len() == whole { 8 } else { 1 };
        self.build(part, path.below(0, step))
    }
}
