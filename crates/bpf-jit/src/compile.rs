//! From a list of programs to machine code.
//!
//! Compilation is for control threads: it allocates, and takes milliseconds. It refuses what would exceed its bounds
//! ([`Options`]); [`crate::interpret`] runs such lists.

use cranelift_codegen::Context;
use cranelift_codegen::control::ControlPlane;
use cranelift_codegen::ir::{AbiParam, Function, Signature, UserFuncName, types};
use cranelift_codegen::isa::{OwnedTargetIsa, TargetIsa};
use cranelift_codegen::settings::{self, Configurable};
use cranelift_frontend::FunctionBuilderContext;
use packet::bpf::Program;

use crate::code::Code;
use crate::emit::emit;

/// Bounds of compilation.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Most programs in a list.
    pub programs: usize,
    /// Most instructions of all programs.
    pub instructions: usize,
    /// Steps emitted, after which paths forget what they know. Further code is at most as long as the programs.
    pub budget: usize,
    /// Most bytes of machine code.
    pub code: usize,
    /// Whether short lists are computed without branches.
    pub branchless: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { programs: 256, instructions: 8192, budget: 8192, code: 1 << 20, branchless: true }
    }
}

/// Most bytes of stack of a function: registers and scratch memory, as far as the processor has no registers for them.
const STACK: u32 = 64 << 10;

/// Reasons for not compiling a list.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unsupported {
    /// The list has no program.
    #[error("the list is empty")]
    Empty,
    /// More programs than permitted.
    #[error("{found} filters are more than {limit}")]
    Programs {
        /// Programs in the list.
        found: usize,
        /// Programs permitted.
        limit: usize,
    },
    /// More instructions than permitted.
    #[error("the filters have {found} instructions together, more than {limit}")]
    Instructions {
        /// Instructions of all programs.
        found: usize,
        /// Instructions permitted.
        limit: usize,
    },
    /// More machine code than permitted.
    #[error("the machine code has {found} bytes, more than {limit}")]
    Code {
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

impl Unsupported {
    /// Whether the list is to blame, not the processor or the system.
    pub fn is_bound(&self) -> bool {
        !matches!(self, Self::Compiler(_) | Self::Memory(_))
    }
}

/// Compiles a list of programs. Packets begin with the first one, or with one of the programs `entries`.
///
/// # Errors
/// Why it is not compiled.
pub fn compile(programs: &[Program], entries: &[usize], options: &Options) -> Result<Code, Unsupported> {
    let instructions = programs.iter().map(|program| program.steps().len()).sum();
    if programs.is_empty() {
        return Err(Unsupported::Empty);
    }
    if programs.len() > options.programs {
        return Err(Unsupported::Programs { found: programs.len(), limit: options.programs });
    }
    if instructions > options.instructions {
        return Err(Unsupported::Instructions { found: instructions, limit: options.instructions });
    }
    let mut all: Vec<u32> =
        entries.iter().filter(|entry| **entry < programs.len()).map(|e| *e as u32).collect();
    all.push(0);
    all.sort_unstable();
    all.dedup();

    let isa = target().map_err(Unsupported::Compiler)?;
    let isa: &dyn TargetIsa = &*isa;
    let mut signature = Signature::new(isa.default_call_conv());
    signature.params = vec![AbiParam::new(types::I64); 4];
    signature.returns = vec![AbiParam::new(types::I64)];
    let emitted = |flat| {
        let mut function = Function::with_name_signature(UserFuncName::default(), signature.clone());
        let mut builder = FunctionBuilderContext::new();
        let config = isa.frontend_config();
        emit(&mut function, &mut builder, config, programs, &all, options.budget, flat).then_some(function)
    };
    // A list that cannot do without branches is emitted again.
    let function = (options.branchless.then(|| emitted(true)).flatten()).or_else(|| emitted(false));
    let mut context =
        Context::for_function(function.ok_or_else(|| Unsupported::Compiler("no function".into()))?);
    let compiled = context
        .compile(isa, &mut ControlPlane::default())
        .map_err(|error| Unsupported::Compiler(format!("{:?}", error.inner)))?;
    // All addresses come with the packets: there is nothing to relocate.
    if !compiled.buffer.relocs().is_empty() {
        return Err(Unsupported::Compiler("code with relocations".into()));
    }
    let stack = compiled.buffer.frame_layout().map_or(0, |layout| layout.frame_to_fp_offset);
    if stack > STACK {
        return Err(Unsupported::Compiler(format!("{stack} bytes of stack are more than {STACK}")));
    }
    let code = compiled.code_buffer();
    if code.len() > options.code {
        return Err(Unsupported::Code { found: code.len(), limit: options.code });
    }
    Code::new(code, all).map_err(|error| Unsupported::Memory(error.to_string()))
}

/// The processor that this runs on.
fn target() -> Result<OwnedTargetIsa, String> {
    let mut flags = settings::builder();
    flags.set("opt_level", "speed").map_err(|error| error.to_string())?;
    if !cfg!(debug_assertions) {
        flags.set("enable_verifier", "false").map_err(|error| error.to_string())?;
    }
    let isa = cranelift_native::builder()?;
    isa.finish(settings::Flags::new(flags)).map_err(|error| error.to_string())
}
