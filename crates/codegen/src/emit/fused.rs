//! Functions that take the place of several, so that a packet passes from one to the next without the runtime: the
//! beginning of a pass up to the key of its first lookup, and all stages of a pass.
//!
//! Invariant: they do what the runtime does with the functions that they are made of ([`crate::runtime`], `pass.rs`).
//! Only the runtime calls them, at depth 0.

use cranelift_codegen::ir::{BlockArg, InstBuilder, types};
use pipeline::ir::{BlockId, Parser, Program, Slot, Stage, Stmt};

use super::stmt::Next;
use super::{Emit, Kind};
use crate::code::BoundVar;
use crate::flow;
use crate::layout::word;
use crate::special::decided::Origin;
use crate::special::{Reads, each};

/// Most words that are cleared one by one.
const MOST_CLEARED: usize = 128;

/// Most statements of a program whose stages are one function: they are compiled twice.
const MOST_STATEMENTS: usize = 1000;

/// Words of a frame that are cleared when a pass begins: whether it is decided, the hits, the data but for stacks.
pub(crate) fn cleared(stacks: i32) -> std::ops::Range<usize> {
    word::UNDECIDED..stacks as usize / 8
}

/// Whether a pass can begin in one function: none of these blocks, which prepare the first lookup, reads the payload,
/// from which the runtime takes the parsed headers only later.
pub(crate) fn can_arrive(program: &Program, stacks: i32, blocks: &[&[Stmt]]) -> bool {
    let mut reads = Reads::none(program);
    blocks.iter().for_each(|body| reads.body(program, body));
    program.tables.iter().flat_map(|table| &table.keys).for_each(|key| reads.expr(program, &key.value));
    !reads.payload && cleared(stacks).len() <= MOST_CLEARED
}

/// Whether the stages of a program can be one function: no block takes the place of another one.
pub(crate) fn can_fuse<'p>(program: &'p Program, defined: impl Iterator<Item = &'p [Stmt]>) -> bool {
    let deparsers: Vec<_> = program.stages.iter().filter_map(|stage| stage.deparser).collect();
    let blocks = program.blocks.iter().enumerate().filter(|(i, _)| !deparsers.contains(&BlockId::at(*i)));
    let blocks = blocks.map(|(_, (_, body))| &body[..]);
    let actions = program.actions.iter().map(|action| &action.body[..]);
    let (mut stays, mut count) = (true, 0);
    for body in blocks.chain(actions).chain(defined) {
        each(body, &mut |stmt| {
            stays &= !matches!(stmt, Stmt::Goto(_));
            count += 1;
        });
    }
    stays && count <= MOST_STATEMENTS
}

impl Emit<'_, '_> {
    /// What a pass of a received packet begins with: clears the frame, but for the variables that the runtime has filled
    /// in; parses; then the first stage's statements in front of the first lookup, and its key.
    pub(crate) fn arrival(&mut self, parser: Option<&Parser>, filled: &[BoundVar], body: &[Stmt]) {
        let zero = self.zero();
        let is_filled = |i: &usize| {
            let error = |bound: &&BoundVar| bound.slot != Slot::ParserError;
            filled.iter().filter(error).any(|bound| bound.words(0).any(|(at, _)| at == *i))
        };
        for i in cleared(self.cx.layout.stacks).filter(|i| !is_filled(i)) {
            self.store_word(zero, i);
        }
        if let Some(parser) = parser {
            self.store_word(zero, word::FAULT);
            let error = self.parse(parser);
            self.at = None;
            self.kind = Kind::Body;
            self.store_word(zero, word::FAULT);
            for bound in filled.iter().filter(|bound| bound.slot == Slot::ParserError) {
                self.fill(*bound, error);
            }
        }
        self.preparation(body);
    }

    /// All stages of a pass: what each consists of, one behind the other.
    pub(crate) fn stages(&mut self, args: Origin, stages: &[Stage]) {
        self.args_from = args;
        let out = self.b.create_block();
        let how = self.b.append_block_param(out, types::I64);
        let ends = self.int(flow::NEXT.cast_unsigned());
        for (number, stage) in stages.iter().enumerate() {
            let on = self.b.create_block();
            for block in [Some(stage.control), stage.finish].into_iter().flatten() {
                let Some((_, body)) = self.cx.program.blocks.get(block.index()) else { continue };
                let next = self.b.create_block();
                self.kind = Kind::Stage { next, on, out };
                if self.body(body) == Next::Follows {
                    self.jump(next);
                }
                self.begin(next);
            }
            self.b.ins().jump(out, &[BlockArg::Value(ends)]);
            self.begin(on);
            if number + 1 < stages.len() {
                let (stage, nothing) = (self.int(number as u64 + 1), self.zero());
                self.store_word(stage, word::STAGE);
                self.store_word(nothing, word::SENT);
            }
        }
        self.b.ins().jump(out, &[BlockArg::Value(ends)]);
        self.begin(out);
        self.b.ins().return_(&[how]);
    }
}
