//! From a checked program to machine code.
//!
//! Compilation is for control threads: it allocates and takes milliseconds. It refuses what would exceed its bounds
//! ([`Options`]), and says why ([`Unsupported`]); the interpreter runs such programs.

use std::cell::RefCell;
use std::sync::Arc;

use cranelift_codegen::Context;
use cranelift_codegen::control::ControlPlane;
use cranelift_codegen::ir::{Function, UserFuncName};
use cranelift_codegen::isa::{OwnedTargetIsa, TargetIsa};
use cranelift_codegen::settings::{self, Configurable};
use cranelift_frontend::FunctionBuilderContext;
use pipeline::Checked;
use pipeline::interp::Limits;
use pipeline::ir::{Action, Param, Selection, Stmt, VarId};

use crate::code::{ActionCode, Code, Functions};
use crate::emit::{Emit, Shared, signature};
use crate::layout::Layout;

/// Bounds of compilation.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Bounds of what a packet may cause; code has them as constants.
    pub limits: Limits,
    /// Most bytes of machine code of a program or of an action.
    pub code: usize,
    /// Most bytes of stack that a packet may need, at the deepest nesting that the limits allow.
    pub stack: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { limits: Limits::default(), code: 16 << 20, stack: 1 << 20 }
    }
}

/// Reasons for not compiling a program.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unsupported {
    /// Headers and variables need a larger frame than code can address.
    #[error("headers and variables exceed 16 MiB")]
    Frame,
    /// More machine code than permitted.
    #[error("the machine code has {found} bytes, more than the limit of {limit}")]
    Code {
        /// Bytes needed.
        found: usize,
        /// Bytes permitted.
        limit: usize,
    },
    /// More stack than permitted.
    #[error("nested calls may need {found} bytes of stack, more than the limit of {limit}")]
    Stack {
        /// Bytes needed.
        found: usize,
        /// Bytes permitted.
        limit: usize,
    },
    /// The compiler failed, or has no backend for this processor.
    #[error("the compiler failed: {0}")]
    Compiler(String),
    /// The system refused executable memory.
    #[error("no executable memory: {0}")]
    Memory(String),
}

/// Stack of the runtime's functions between two functions of generated code, bytes.
const RUNTIME_FRAME: usize = 1024;

/// Compiles a program.
///
/// # Errors
/// Why it is not compiled.
pub fn compile(program: &Checked, options: &Options) -> Result<Code, Unsupported> {
    let layout = Layout::new(program).ok_or(Unsupported::Frame)?;
    let mut compiler = Compiler::new(options)?;
    let cx = Shared { program, layout: &layout, limits: &options.limits, constants: RefCell::default() };
    for (_, body) in &program.blocks {
        compiler.function(&cx, &[], |e| e.function(body))?;
    }
    for action in &program.actions {
        compiler.function(&cx, &action.params, |e| e.function(&action.body))?;
    }
    for parser in &program.parsers {
        compiler.function(&cx, &[], |e| e.parser(parser))?;
    }
    let none = Selection { hash: pipeline::ir::HashKind::Identity, input: vec![] };
    let of_groups = program.groups.iter().map(|groups| &groups.select);
    let of_profiles = program.profiles.iter().map(|profile| profile.select.as_ref().unwrap_or(&none));
    for select in of_groups.chain(of_profiles) {
        compiler.function(&cx, &[], |e| e.selection(select))?;
    }
    let operands = cx.constants.into_inner();
    let functions = compiler.finish(operands)?;
    let emits_only = program.stages.iter().map(|stage| {
        let body = stage.deparser.and_then(|block| program.blocks.get(block.index()));
        body.is_none_or(|(_, body)| emits_only(body))
    });
    let emits_only = emits_only.collect();
    let slots = program.vars.iter().enumerate();
    let slots = slots.filter_map(|(i, var)| Some((VarId::at(i), var.slot?))).collect();
    Ok(Code { program: program.clone(), limits: options.limits, functions, slots, emits_only, layout })
}

/// Compiles an action that was added to a compiled program.
pub(crate) fn compile_action(
    code: &Code,
    action: &Action,
    options: &Options,
) -> Result<ActionCode, Unsupported> {
    let mut compiler = Compiler::new(options)?;
    let cx = Shared {
        program: &code.program,
        layout: &code.layout,
        limits: &code.limits,
        constants: RefCell::default(),
    };
    compiler.function(&cx, &action.params, |e| e.function(&action.body))?;
    let operands = cx.constants.into_inner();
    Ok(ActionCode { functions: compiler.finish(operands)? })
}

/// Whether statements only emit headers: then deparsing needs no copy of the packet's data.
fn emits_only(body: &[Stmt]) -> bool {
    body.iter().all(|stmt| match stmt {
        Stmt::Emit(_) => true,
        Stmt::If(_, yes, no) => emits_only(yes) && emits_only(no),
        _ => false,
    })
}

struct Compiler {
    isa: OwnedTargetIsa,
    context: Context,
    builder: FunctionBuilderContext,
    code: Vec<u8>,
    offsets: Vec<usize>,
    largest_frame: u32,
    options: Options,
}

impl Compiler {
    fn new(options: &Options) -> Result<Self, Unsupported> {
        let failed = |error: &dyn std::fmt::Display| Unsupported::Compiler(error.to_string());
        let mut flags = settings::builder();
        flags.set("opt_level", "speed").map_err(|error| failed(&error))?;
        if !cfg!(debug_assertions) {
            flags.set("enable_verifier", "false").map_err(|error| failed(&error))?;
        }
        let isa = cranelift_native::builder().map_err(|error| failed(&error))?;
        let isa = isa.finish(settings::Flags::new(flags)).map_err(|error| failed(&error))?;
        Ok(Self {
            isa,
            context: Context::new(),
            builder: FunctionBuilderContext::new(),
            code: vec![],
            offsets: vec![],
            largest_frame: 0,
            options: *options,
        })
    }

    /// Compiles a function and appends its code.
    fn function<'a>(
        &mut self,
        cx: &'a Shared<'a>,
        params: &'a [Param],
        emit: impl FnOnce(&mut Emit<'a, '_>),
    ) -> Result<(), Unsupported> {
        self.context.clear();
        self.context.func =
            Function::with_name_signature(UserFuncName::default(), signature(self.isa.default_call_conv()));
        let mut emitter = Emit::new(&mut self.context.func, &mut self.builder, cx, params);
        emit(&mut emitter);
        emitter.finish(self.isa.frontend_config());
        let failed = |error: &dyn std::fmt::Debug| Unsupported::Compiler(format!("{error:?}"));
        let isa: &dyn TargetIsa = &*self.isa;
        let compiled =
            self.context.compile(isa, &mut ControlPlane::default()).map_err(|error| failed(&error.inner))?;
        // All addresses are constants: there is nothing to relocate.
        if !compiled.buffer.relocs().is_empty() {
            return Err(Unsupported::Compiler("code with relocations".into()));
        }
        let align = (compiled.buffer.alignment as usize).max(16);
        self.code.resize(self.code.len().next_multiple_of(align), 0);
        self.offsets.push(self.code.len());
        self.code.extend_from_slice(compiled.code_buffer());
        self.largest_frame =
            self.largest_frame.max(compiled.buffer.frame_layout().map_or(0, |l| l.frame_to_fp_offset));
        if self.code.len() > self.options.code {
            return Err(Unsupported::Code { found: self.code.len(), limit: self.options.code });
        }
        Ok(())
    }

    fn finish(self, operands: Vec<Arc<crate::code::Operand>>) -> Result<Functions, Unsupported> {
        // Each function of code is at least one level deeper than its caller.
        let depth = self.options.limits.depth as usize;
        let found = depth.saturating_mul(self.largest_frame as usize + RUNTIME_FRAME);
        if found > self.options.stack {
            return Err(Unsupported::Stack { found, limit: self.options.stack });
        }
        Functions::new(&self.code, &self.offsets, operands)
            .map_err(|error| Unsupported::Memory(error.to_string()))
    }
}
