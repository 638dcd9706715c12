//! Nondeterministic automaton of all patterns.
//!
//! Patterns that are a sequence of bytes and classes of bytes, such as literals, share a trie, so that thousands of
//! them compile in time: each place in a stream is then at few nodes. All others are compiled by [`regex_automata`],
//! one by one, and joined.
//!
//! Invariant: the number of a pattern in the automaton is its place in the list.
#![allow(clippy::result_large_err)] // the builder's own error, once a list

use std::collections::BTreeMap;

use regex_automata::nfa::thompson::{
    self, BuildError, Builder, Compiler, NFA, State, Transition, WhichCaptures,
};
use regex_automata::util::primitives::StateID;
use regex_syntax::hir::{Class, Hir, HirKind};

/// Bytes that a step accepts, as ranges in order.
type Label = Vec<(u8, u8)>;

#[derive(Default)]
struct Node {
    next: BTreeMap<Label, usize>,
    matches: Vec<StateID>,
}

/// Reasons for refusing patterns.
pub(crate) enum TooLarge {
    /// A pattern, by its place in the list.
    Pattern(usize),
    /// All together.
    List,
}

/// Builds the automaton, of at most `limit` bytes; each pattern that is not in the trie has `each` bytes at most.
pub(crate) fn build(patterns: &[&Hir], each: usize, limit: usize) -> Result<NFA, TooLarge> {
    let list = |_: BuildError| TooLarge::List;
    let config =
        thompson::Config::new().utf8(false).which_captures(WhichCaptures::None).nfa_size_limit(Some(each));
    let mut compiler = Compiler::new();
    compiler.configure(config);
    let mut builder = Builder::new();
    builder.set_utf8(false);
    builder.set_size_limit(Some(limit)).map_err(list)?;
    let mut nodes = vec![Node::default()];
    let mut starts = Vec::new();
    for (number, pattern) in patterns.iter().enumerate() {
        builder.start_pattern().map_err(list)?;
        let start = match labels(pattern) {
            Some(labels) => {
                let end = builder.add_match().map_err(list)?;
                insert(&mut nodes, labels, end);
                end
            }
            None => {
                let own = compiler.build_from_hir(pattern).map_err(|_| TooLarge::Pattern(number))?;
                let start = join(&mut builder, &own).map_err(list)?;
                starts.push(start);
                start
            }
        };
        builder.finish_pattern(start).map_err(list)?;
    }
    finish(builder, &nodes, starts).map_err(list)
}

/// Returns the labels of a pattern that is a sequence of bytes and classes.
fn labels(pattern: &Hir) -> Option<Vec<Label>> {
    match pattern.kind() {
        HirKind::Literal(literal) => Some(literal.0.iter().map(|byte| vec![(*byte, *byte)]).collect()),
        HirKind::Class(Class::Bytes(class)) => {
            Some(vec![class.ranges().iter().map(|range| (range.start(), range.end())).collect()])
        }
        HirKind::Concat(parts) => {
            let parts = parts.iter().map(labels).collect::<Option<Vec<_>>>()?;
            Some(parts.concat())
        }
        _ => None,
    }
}

/// Puts a pattern into the trie.
fn insert(nodes: &mut Vec<Node>, labels: Vec<Label>, end: StateID) {
    let mut at = 0;
    for label in labels {
        let fresh = nodes.len();
        let Some(node) = nodes.get_mut(at) else { return };
        at = *node.next.entry(label).or_insert(fresh);
        if at == fresh {
            nodes.push(Node::default());
        }
    }
    if let Some(node) = nodes.get_mut(at) {
        node.matches.push(end);
    }
}

/// Copies a compiled pattern into the automaton; returns its start.
fn join(builder: &mut Builder, own: &NFA) -> Result<StateID, BuildError> {
    let range = |builder: &mut Builder, step: &Transition| {
        builder.add_range(Transition { next: StateID::ZERO, ..*step })
    };
    // First all states, then their transitions, which may lead back.
    let mut copies = Vec::new();
    for state in own.states() {
        copies.push(match state {
            State::ByteRange { trans } => range(builder, trans)?,
            State::Look { look, .. } => builder.add_look(StateID::ZERO, *look)?,
            State::Fail => builder.add_fail()?,
            State::Match { .. } => builder.add_match()?,
            State::Capture { .. } => builder.add_empty()?,
            State::Sparse(_) | State::Dense(_) | State::Union { .. } | State::BinaryUnion { .. } => {
                builder.add_union(Vec::new())?
            }
        });
    }
    let copy = |of: &StateID| copies.get(of.as_usize()).copied().unwrap_or(StateID::ZERO);
    for (state, from) in own.states().iter().zip(&copies) {
        match state {
            State::ByteRange { trans } => builder.patch(*from, copy(&trans.next))?,
            State::Look { next, .. } | State::Capture { next, .. } => builder.patch(*from, copy(next))?,
            State::Fail | State::Match { .. } => {}
            State::Union { alternates } => {
                alternates.iter().try_for_each(|next| builder.patch(*from, copy(next)))?;
            }
            State::BinaryUnion { alt1, alt2 } => {
                [alt1, alt2].into_iter().try_for_each(|next| builder.patch(*from, copy(next)))?;
            }
            State::Sparse(steps) => {
                for step in steps.transitions.iter() {
                    let own = range(builder, step)?;
                    builder.patch(own, copy(&step.next))?;
                    builder.patch(*from, own)?;
                }
            }
            State::Dense(steps) => {
                for byte in 0..=u8::MAX {
                    let Some(next) = steps.matches_byte(byte) else { continue };
                    let own =
                        builder.add_range(Transition { start: byte, end: byte, next: StateID::ZERO })?;
                    builder.patch(own, copy(&next))?;
                    builder.patch(*from, own)?;
                }
            }
        }
    }
    Ok(copy(&own.start_anchored()))
}

/// Adds the trie, from its leaves up, and the loop that starts all patterns at each byte.
fn finish(mut builder: Builder, nodes: &[Node], mut starts: Vec<StateID>) -> Result<NFA, BuildError> {
    let mut states = vec![StateID::ZERO; nodes.len()];
    for (number, node) in nodes.iter().enumerate().rev() {
        let next = |node: &usize| states.get(*node).copied().unwrap_or(StateID::ZERO);
        let steps = node.next.iter().flat_map(|(label, node)| {
            let next = next(node);
            label.iter().map(move |(start, end)| Transition { start: *start, end: *end, next })
        });
        let mut steps: Vec<_> = steps.collect();
        steps.sort_by_key(|step| step.start);
        let mut parts = node.matches.clone();
        let is_disjoint = steps.windows(2).all(|pair| matches!(pair, [a, b] if a.end < b.start));
        match steps.len() {
            0 => {}
            _ if is_disjoint => parts.push(builder.add_sparse(steps)?),
            _ => {
                for step in steps {
                    parts.push(builder.add_range(step)?);
                }
            }
        }
        if let Some(state) = states.get_mut(number) {
            *state = builder.add_union(parts)?;
        }
    }
    starts.extend(states.first());
    let root = builder.add_union(starts)?;
    let again = builder.add_union(vec![root])?;
    let any = builder.add_range(Transition { start: 0, end: 255, next: again })?;
    builder.patch(again, any)?;
    builder.build(root, again)
}
