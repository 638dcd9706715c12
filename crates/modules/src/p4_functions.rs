//! Functions that P4 programs declare as `extern` and a native module has (`sdk/c/mswitch_p4.h`).
//!
//! A module lists its functions with the types of their parameters. Numbers are words of 64 bits, the least significant
//! one first; what goes in and what comes out are one array each.
//!
//! Invariants:
//! - a function is called only by programs that declare it with these types, so both arrays have their length;
//! - results have no bits beyond their types, whatever the function writes.

use std::ffi::{CStr, c_char};
use std::path::Path;
use std::sync::Arc;

use libloading::os::unix::Library;
use pipeline::bits::{Bits, MAX_WIDTH};
use pipeline::env::Functions;
use pipeline::ir::{Constant, Direction, Extern, Type};
use smallvec::SmallVec;

use crate::bounded;
use crate::crash::calling;
use crate::log::LogSource;
use crate::module::read;
use crate::shared_object::{self, function};

/// The version of the interface.
const VERSION: u32 = 1;
/// Most functions of a module, and most bytes of a text.
const MOST: usize = 256;
const LONGEST: usize = 1024;

const ABI: &str = "msw_p4_abi";
const LIST: &str = "msw_p4_functions";
/// What a crash in a function names.
const CALLED: &str = "a P4 function";

/// A function, as a module lists it.
#[repr(C)]
struct Listed {
    name: *const c_char,
    params: *const c_char,
    call: Option<Call>,
}

type Call = unsafe extern "C" fn(*const u64, *mut u64);
type Abi = unsafe extern "C" fn() -> u32;
type List = unsafe extern "C" fn() -> *const Listed;
/// Words that are passed without an allocation: 4,096 bits.
type Words = SmallVec<[u64; 64]>;

/// The functions of a native module.
#[derive(Debug)]
pub struct P4Functions {
    /// The file, as messages name it.
    file: Arc<str>,
    functions: Vec<(Extern, Call)>,
    // Its code stays for as long as the pointers to it.
    _library: Library,
}

impl P4Functions {
    /// Loads a shared object, with variables of its own.
    ///
    /// # Errors
    /// It cannot be loaded, or its list is wrong.
    pub fn load(file: &Path) -> Result<Self, String> {
        let content = read(file)?;
        shared_object::check(&content)?;
        let name: Arc<str> = file.display().to_string().into();
        let source = LogSource { module: name.clone(), bridge: None, worker: None };
        bounded::within(&source, LIST, move || calling(&name.clone(), LIST, || Self::of(name, &content)))?
    }

    fn of(file: Arc<str>, content: &[u8]) -> Result<Self, String> {
        let library = shared_object::open(content)?;
        // SAFETY: native modules are trusted: whoever configures one has their code run here. The names say what the
        // types are.
        let version = unsafe { function::<Abi>(&library, ABI)?() };
        if version != VERSION {
            return Err(format!("built for version {version} of the interface; expected {VERSION}"));
        }
        let mut functions: Vec<(Extern, Call)> = Vec::new();
        // SAFETY: as above.
        let mut next = unsafe { function::<List>(&library, LIST)?() };
        // SAFETY: as above; the list ends with an entry without a name, and so do its texts with a zero byte.
        while let Some(listed) = unsafe { next.as_ref() }.filter(|listed| !listed.name.is_null()) {
            // SAFETY: as above.
            let (name, params) = unsafe { (text(listed.name), text(listed.params)) };
            let (Some(name), Some(params)) = (name, params) else {
                return Err(format!(
                    "function {} has no name or parameters of at most {LONGEST} bytes",
                    functions.len()
                ));
            };
            let params = parse(&params).ok_or_else(|| {
                format!("`{name}` has parameters \"{params}\"; expected such as \"out bit<8>, in bit<32>\"")
            })?;
            let Some(call) = listed.call else { return Err(format!("`{name}` has no code")) };
            if functions.iter().any(|(known, _)| known.name == name) {
                return Err(format!("it lists `{name}` twice"));
            }
            if functions.len() == MOST {
                return Err(format!("it lists more than {MOST} functions"));
            }
            functions.push((Extern { name, params }, call));
            // SAFETY: as above: the last entry has no name, so another follows this one.
            next = unsafe { next.add(1) };
        }
        Ok(Self { file, functions, _library: library })
    }
}

impl Functions for P4Functions {
    fn check(&self, function: &Extern) -> Result<(), String> {
        match self.functions.iter().find(|(known, _)| known.name == function.name) {
            Some((known, _)) if known == function => Ok(()),
            Some((known, _)) => {
                Err(format!("{} has `{known}`; the program declares `{function}`", self.file))
            }
            None => Err(format!("{} has no function `{function}`", self.file)),
        }
    }

    fn call(&self, function: &Extern, args: &[Constant], results: &mut [Constant]) -> bool {
        let Some((_, call)) = self.functions.iter().find(|(known, _)| known == function) else {
            return false;
        };
        let input: Words = args.iter().flat_map(|arg| arg.value.limbs()).copied().collect();
        let length = |result: &Constant| words(result.ty);
        let mut output: Words = SmallVec::from_elem(0, results.iter().map(length).sum());
        // SAFETY: the module is trusted; the program declares the function with the types that the module lists, and
        // the arrays have a word for each 64 bits of these.
        calling(&self.file, CALLED, || unsafe { call(input.as_ptr(), output.as_mut_ptr()) });
        let mut rest = &output[..];
        for result in results {
            let (own, behind) = rest.split_at(words(result.ty).min(rest.len()));
            result.value = Bits::from_limbs(result.ty.width(), own);
            rest = behind;
        }
        true
    }
}

/// Words that a number takes.
fn words(ty: Type) -> usize {
    usize::from(ty.width()).div_ceil(64)
}

/// A text of the module, if it is one and not too long.
///
/// # Safety
/// It is null or ends with a zero byte.
unsafe fn text(at: *const c_char) -> Option<String> {
    if at.is_null() {
        return None;
    }
    // SAFETY: the caller's promise.
    let text = unsafe { CStr::from_ptr(at) }.to_str().ok()?;
    (text.len() <= LONGEST).then(|| text.to_owned())
}

/// Reads parameters such as `out bit<8>, in bool`.
fn parse(params: &str) -> Option<Vec<(Direction, Type)>> {
    if params.trim().is_empty() {
        return Some(vec![]);
    }
    let width = |text: &str| {
        let number = text.strip_prefix('<')?.strip_suffix('>')?.parse().ok()?;
        (1..=MAX_WIDTH).contains(&number).then_some(number)
    };
    let one = |param: &str| {
        let (direction, ty) = param.trim().split_once(' ')?;
        let direction = match direction {
            "in" => Direction::In,
            "out" => Direction::Out,
            _ => return None,
        };
        let ty = match ty.trim() {
            "bool" => Type::Bool,
            ty => match (ty.strip_prefix("bit"), ty.strip_prefix("int")) {
                (Some(rest), _) => Type::Bit(width(rest)?),
                (_, Some(rest)) => Type::Int(width(rest)?),
                _ => return None,
            },
        };
        Some((direction, ty))
    };
    params.split(',').map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_have_directions_and_types() {
        use Direction::{In, Out};
        let some = vec![(Out, Type::Bit(8)), (In, Type::Int(128)), (In, Type::Bool)];
        assert_eq!(parse("out bit<8>, in int<128>,in  bool"), Some(some));
        assert_eq!(parse(" "), Some(vec![]));
        for wrong in [
            "bit<8>",
            "inout bit<8>",
            "in bit<0>",
            "in bit<2049>",
            "in bit",
            "in string",
            "in bit<8>,",
            "in bit<-1>",
        ] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }
}
