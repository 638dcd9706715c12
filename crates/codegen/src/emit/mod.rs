//! Emission of machine code, through Cranelift.
//!
//! Every function has one signature: address of the frame, address of the action's arguments, depth of calls so far;
//! it returns how it ended ([`crate::flow`]). What the code may touch:
//! - the frame, at offsets of [`Layout`], which lie inside it; a stack's element at an index that was compared with the
//!   stack's size before, or replaced by 0;
//! - the packet's window, only at bytes compared with its length before;
//! - the action's arguments, at offsets of its parameters: whoever makes an action call lays its arguments out by
//!   [`param_words`];
//! - stack slots of its own, at constant offsets;
//! - in a writer, as many bytes from its argument on as the headers that it emits have: whoever runs it has room for
//!   these;
//! - functions of [`crate::runtime::calls`], and code whose address the runtime put into the frame or a call record.
//!
//! - `limbs.rs`: arithmetic of any width; `bytes.rs`: bits of big-endian bytes;
//! - `expr.rs`: expressions; `place.rs`: headers, fields, variables;
//! - `stmt.rs`: statements; `list.rs`: lists of bits; `parser.rs`: parsers; `writer.rs`: deparsers that write headers;
//! - `fused.rs`: the beginning of a pass, and all of its stages, as one function each.

mod bytes;
mod expr;
mod fused;
mod limbs;
mod list;
mod parser;
mod place;
mod stmt;
mod writer;

pub(crate) use expr::may_fault;
pub(crate) use fused::{can_arrive, can_fuse};
pub(crate) use writer::most_written;

use std::sync::Arc;

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::immediates::Imm64;
use cranelift_codegen::ir::{
    AbiParam, Block, BlockArg, Function, InstBuilder, MemFlagsData, SigRef, Signature, StackSlotData,
    StackSlotKind, Value, types,
};
use cranelift_codegen::isa::CallConv;
use cranelift_frontend::{FunctionBuilder, Variable};
use pipeline::interp::{Dropped, Limits};
use pipeline::ir::{Param, Program, Type};

use crate::code::BoundVar;
use crate::flow;
use crate::layout::{Layout, word};
use crate::special::decided::{Origin, Origins};

/// A value: its type, and its limbs, least significant first, with zeros above the width.
#[derive(Debug, Clone)]
pub(crate) struct Val {
    pub(crate) ty: Type,
    pub(crate) limbs: Vec<Value>,
}

/// Limbs of a width.
pub(crate) fn limbs_of(width: u16) -> usize {
    usize::from(width.div_ceil(64))
}

/// First word of each parameter among an action's arguments, and their total.
pub(crate) fn param_words(params: &[Param]) -> (Vec<usize>, usize) {
    let mut total = 0;
    let first = params.iter().map(|param| {
        let first = total;
        total += limbs_of(param.ty.width());
        first
    });
    (first.collect(), total)
}

/// What a function is for, which decides how its statements end.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind {
    /// A block, an action, a deparser: by returning.
    Body,
    /// Blocks of stages, one behind the other: by what follows.
    Stage {
        /// Behind the block.
        next: Block,
        /// The next stage.
        on: Block,
        /// End of the function; its parameter is how it ends.
        out: Block,
    },
    /// Statements of a parser: at the end of the operation, or with an error.
    Parser {
        /// End of the operation.
        end: Block,
        /// End of the parser; its parameter is the error.
        fail: Block,
    },
}

/// What all functions of a program share.
pub(crate) struct Shared<'a> {
    pub(crate) program: &'a Program,
    pub(crate) layout: &'a Layout,
    pub(crate) limits: &'a Limits,
    /// Origins of values, if the program is a residual: nothing in it exceeds the limits then, and keys are those that
    /// tables have.
    pub(crate) origins: Option<&'a Origins>,
    /// For each table, the index of the function that lays out all of its keys; tables with equal keys share one.
    pub(crate) keys: &'a [usize],
    /// Variables to fill in for a packet that goes on in the second stage, if nothing else is to be done then.
    pub(crate) entered: Option<&'a [BoundVar]>,
    /// Operands that code refers to by address.
    pub(crate) constants: std::cell::RefCell<Vec<Arc<crate::code::Operand>>>,
}

impl Shared<'_> {
    /// Whether the program is a residual.
    pub(crate) fn is_special(&self) -> bool {
        self.origins.is_some()
    }
}

/// Emits one function.
pub(crate) struct Emit<'a, 'f> {
    pub(crate) b: FunctionBuilder<'f>,
    pub(crate) cx: &'a Shared<'a>,
    kind: Kind,
    frame: Value,
    args: Value,
    depth: Value,
    /// Statements within each other, in this function.
    level: i64,
    params: &'a [Param],
    /// Origin of the arguments.
    args_from: Origin,
    atomic: bool,
    /// Position of the parser, bytes.
    at: Option<Variable>,
    /// Whether the parser cannot enter too many states.
    is_short: bool,
    /// Whether the function only prepares the first lookup: its argument is the address of the key.
    prepares: bool,
    /// Where a writer writes the next header.
    writes_to: Option<Variable>,
    signatures: Vec<Option<SigRef>>,
}

/// The signature of every function: `(frame, arguments, depth) -> flow`.
pub(crate) fn signature(call: CallConv) -> Signature {
    let mut signature = Signature::new(call);
    signature.params = vec![AbiParam::new(types::I64); 3];
    signature.returns = vec![AbiParam::new(types::I64)];
    signature
}

const MEM: MemFlagsData = MemFlagsData::trusted();
/// Accesses to packets and fields, at any address.
const BYTES: MemFlagsData = MemFlagsData::new().with_notrap();

impl<'a, 'f> Emit<'a, 'f> {
    pub(crate) fn new(
        function: &'f mut Function,
        context: &'f mut cranelift_frontend::FunctionBuilderContext,
        cx: &'a Shared<'a>,
        params: &'a [Param],
    ) -> Self {
        let mut b = FunctionBuilder::new(function, context);
        let entry = b.create_block();
        b.append_block_params_for_function_params(entry);
        b.switch_to_block(entry);
        let given = b.block_params(entry).to_vec();
        let [frame, args, depth] = given[..] else { unreachable!("the signature has three parameters") };
        Self {
            b,
            cx,
            kind: Kind::Body,
            frame,
            args,
            depth,
            level: 0,
            params,
            args_from: Origin::Entry,
            atomic: false,
            at: None,
            is_short: false,
            prepares: false,
            writes_to: None,
            signatures: vec![None; 12],
        }
    }

    /// Ends the function.
    pub(crate) fn finish(mut self, config: cranelift_codegen::isa::TargetFrontendConfig) {
        self.b.seal_all_blocks();
        self.b.finalize(config);
    }

    fn int(&mut self, n: u64) -> Value {
        self.b.ins().iconst(types::I64, Imm64::new(n.cast_signed()))
    }

    fn zero(&mut self) -> Value {
        self.int(0)
    }

    fn address<T>(&mut self, of: *const T) -> Value {
        self.int(of as usize as u64)
    }

    /// A comparison with a constant, as a truth value of Cranelift's.
    fn is(&mut self, cc: IntCC, a: Value, n: u64) -> Value {
        let n = self.int(n);
        self.b.ins().icmp(cc, a, n)
    }

    fn add_const(&mut self, a: Value, n: i64) -> Value {
        if n == 0 {
            return a;
        }
        let n = self.int(n.cast_unsigned());
        self.b.ins().iadd(a, n)
    }

    fn and_const(&mut self, a: Value, n: u64) -> Value {
        if n == u64::MAX {
            return a;
        }
        let n = self.int(n);
        self.b.ins().band(a, n)
    }

    fn shl(&mut self, a: Value, by: u32) -> Value {
        if by == 0 {
            return a;
        }
        let by = self.int(by.into());
        self.b.ins().ishl(a, by)
    }

    fn shr(&mut self, a: Value, by: u32) -> Value {
        if by == 0 {
            return a;
        }
        let by = self.int(by.into());
        self.b.ins().ushr(a, by)
    }

    /// A truth value as a number.
    fn number_of(&mut self, truth: Value) -> Value {
        self.b.ins().uextend(types::I64, truth)
    }

    fn load(&mut self, base: Value, offset: i32) -> Value {
        self.b.ins().load(types::I64, MEM, base, offset)
    }

    fn store(&mut self, value: Value, base: Value, offset: i32) {
        self.b.ins().store(MEM, value, base, offset);
    }

    fn load_word(&mut self, word: usize) -> Value {
        self.load(self.frame, (word * 8) as i32)
    }

    fn store_word(&mut self, value: Value, word: usize) {
        self.store(value, self.frame, (word * 8) as i32);
    }

    /// Stack memory of so many words; its address.
    fn slot(&mut self, words: usize) -> Value {
        let size = (words.max(1) * 8) as u32;
        let slot = self.b.create_sized_stack_slot(StackSlotData::new(StackSlotKind::ExplicitSlot, size, 3));
        self.b.ins().stack_addr(types::I64, slot, 0)
    }

    /// The limbs in stack memory; its address.
    fn spill(&mut self, limbs: &[Value]) -> Value {
        let at = self.slot(limbs.len());
        for (i, limb) in limbs.iter().enumerate() {
            self.store(*limb, at, (i * 8) as i32);
        }
        at
    }

    fn unspill(&mut self, at: Value, count: usize) -> Vec<Value> {
        (0..count).map(|i| self.load(at, (i * 8) as i32)).collect()
    }

    /// Calls a function of the runtime at this address with these arguments; all return a number.
    fn call(&mut self, function: *const (), args: &[Value]) -> Value {
        let address = self.address(function);
        self.call_at(address, args)
    }

    fn call_at(&mut self, address: Value, args: &[Value]) -> Value {
        let known = self.signatures.get(args.len()).copied().flatten();
        let signature = known.unwrap_or_else(|| {
            let mut signature = Signature::new(self.b.func.signature.call_conv);
            signature.params = vec![AbiParam::new(types::I64); args.len()];
            signature.returns = vec![AbiParam::new(types::I64)];
            self.b.import_signature(signature)
        });
        if let Some(slot) = self.signatures.get_mut(args.len()) {
            *slot = Some(signature);
        }
        let call = self.b.ins().call_indirect(signature, address, args);
        self.b.inst_results(call).first().copied().unwrap_or(self.frame)
    }

    fn branch(&mut self, condition: Value, yes: Block, no: Block) {
        self.b.ins().brif(condition, yes, &[], no, &[]);
    }

    fn jump(&mut self, to: Block) {
        self.b.ins().jump(to, &[]);
    }

    fn begin(&mut self, block: Block) {
        self.b.switch_to_block(block);
    }

    /// Continues in a new block if the condition holds, else runs `otherwise`, which must end the block.
    fn unless(&mut self, condition: Value, otherwise: impl FnOnce(&mut Self)) {
        let (next, cold) = (self.b.create_block(), self.b.create_block());
        self.branch(condition, next, cold);
        self.b.set_cold_block(cold);
        self.begin(cold);
        otherwise(self);
        self.begin(next);
    }

    /// Runs `then` only if the condition holds.
    fn when(&mut self, condition: Value, then: impl FnOnce(&mut Self)) {
        let (yes, next) = (self.b.create_block(), self.b.create_block());
        self.branch(condition, yes, next);
        self.begin(yes);
        then(self);
        self.jump(next);
        self.begin(next);
    }

    /// Counts steps; ends the pass if there were too many.
    fn steps(&mut self, n: u32) {
        if n == 0 || self.cx.is_special() {
            return;
        }
        let before = self.load_word(word::STEPS);
        let now = self.add_const(before, n.into());
        self.store_word(now, word::STEPS);
        let fits = self.is(IntCC::UnsignedLessThanOrEqual, now, self.cx.limits.steps.into());
        self.unless(fits, |e| e.exit(flow::drop_code(Dropped::Limit(pipeline::interp::Limit::Steps))));
    }

    /// Ends the function, or what else ends here; nothing may follow in the block.
    fn exit(&mut self, code: i64) {
        match self.kind {
            Kind::Body => {
                let code = self.int(code.cast_unsigned());
                self.exit_with(code);
            }
            Kind::Stage { next, on, .. } => {
                self.unlock();
                match code {
                    flow::ON => self.jump(on),
                    _ if flow::dropped(code).is_none() => self.jump(next),
                    _ => {
                        let code = self.int(code.cast_unsigned());
                        self.leave(code);
                    }
                }
            }
            Kind::Parser { end, fail } => {
                self.unlock();
                match flow::dropped(code) {
                    Some(Dropped::NoExtern(_)) => {
                        let error = self.int(pipeline::ir::ErrorId::INVALID_ARGUMENT.0.into());
                        self.b.ins().jump(fail, &[BlockArg::Value(error)]);
                    }
                    _ => self.jump(end),
                }
            }
        }
    }

    /// Ends the function with a number that is known at run time.
    fn exit_with(&mut self, code: Value) {
        self.unlock();
        match self.kind {
            Kind::Body => drop(self.b.ins().return_(&[code])),
            Kind::Stage { next, on, .. } => {
                let other = self.b.create_block();
                let goes_on = self.is(IntCC::Equal, code, flow::ON.cast_unsigned());
                self.branch(goes_on, on, other);
                self.begin(other);
                let tag = self.and_const(code, 0xff);
                let is_dropped = self.is(IntCC::Equal, tag, flow::DROP.cast_unsigned());
                let gone = self.b.create_block();
                self.branch(is_dropped, gone, next);
                self.begin(gone);
                self.leave(code);
            }
            // Statements of parsers drop no packets.
            Kind::Parser { end, .. } => self.jump(end),
        }
    }

    /// Sets a variable that is bound to intrinsic metadata.
    fn fill(&mut self, bound: BoundVar, number: Value) {
        let (number, rest) = (self.and_const(number, bound.mask()), self.zero());
        for (i, (at, _)) in bound.words(0).enumerate() {
            self.store_word(if i == 0 { number } else { rest }, at);
        }
    }

    /// Ends a function of stages.
    fn leave(&mut self, code: Value) {
        if let Kind::Stage { out, .. } = self.kind {
            self.b.ins().jump(out, &[BlockArg::Value(code)]);
        }
    }

    /// Notes that the packet would no longer leave as it came. What parsers do is undone by deparsers.
    fn note_change(&mut self) {
        if self.at.is_none() {
            let one = self.int(1);
            self.store(one, self.frame, self.cx.layout.changed());
        }
    }

    /// Notes that elements of a stack are written.
    fn note_stack(&mut self, like: pipeline::ir::HeaderId) {
        let header = self.cx.program.headers.get(like.index());
        if header.is_some_and(|header| matches!(header.place, pipeline::ir::HeaderPlace::Element(..))) {
            let one = self.int(1);
            self.store_word(one, word::TOUCHED);
        }
    }

    fn unlock(&mut self) {
        if self.atomic {
            self.call(crate::runtime::calls::unlock as *const (), &[self.frame]);
        }
    }
}
