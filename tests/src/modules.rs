//! Modules that tests compile from source, with the tools that the documentation recommends to authors.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::command::succeeded;
use crate::{Error, Result};

/// The repository's folder.
fn repository() -> Result<PathBuf> {
    let tests_folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    tests_folder.parent().map(Path::to_owned).ok_or_else(|| Error::new("the tests are not in a repository"))
}

/// Compiles a C file of the repository to WebAssembly in a folder; returns the name of its logic. `more` has further
/// compiler options.
pub fn wasm(source: &str, folder: &Path, more: &[&str]) -> Result<String> {
    let out = folder.join(name_of(source)?).with_extension("wasm");
    let mut clang = Command::new("clang");
    clang.args(["--target=wasm32", "-O2", "-nostdlib", "-mbulk-memory", "-matomics", "-Wl,--no-entry"]);
    compile(&mut clang, source, &out, more)?;
    Ok(format!("wasm:{}", out.display()))
}

/// Like [`wasm`], but compiles to a shared object.
pub fn native(source: &str, folder: &Path, more: &[&str]) -> Result<String> {
    let out = folder.join(name_of(source)?).with_extension("so");
    compile(Command::new("cc").args(["-O2", "-shared", "-fPIC"]), source, &out, more)?;
    Ok(format!("native:{}", out.display()))
}

fn name_of(source: &str) -> Result<&str> {
    source.rsplit('/').next().ok_or_else(|| Error::new("a source without a name"))
}

fn compile(command: &mut Command, source: &str, out: &Path, more: &[&str]) -> Result<()> {
    let repository = repository()?;
    command.args(["-Wall", "-Wextra", "-Werror", "-I"]).arg(repository.join("sdk/c"));
    command.args(more).arg("-o").arg(out).arg(repository.join(source));
    succeeded(source, command.output()?).map(drop)
}

/// Compiles a Rust file of the repository to WebAssembly, with Debian's compiler and the SDK's crate.
pub fn wasm_from_rust(source: &str, folder: &Path) -> Result<String> {
    let repository = repository()?;
    let (crate_file, out) =
        (folder.join("libmswitch_module.rlib"), folder.join(name_of(source)?).with_extension("wasm"));
    let rustc = || {
        let mut rustc = Command::new("/usr/bin/rustc");
        rustc.args([
            "--edition",
            "2021",
            "-C",
            "opt-level=2",
            "-C",
            "panic=abort",
            "--target",
            "wasm32-unknown-unknown",
        ]);
        rustc.args(["-C", "target-feature=+atomics,+bulk-memory", "-D", "warnings"]);
        rustc
    };
    let mut library = rustc();
    library.args(["--crate-type", "rlib", "--crate-name", "mswitch_module", "-o"]).arg(&crate_file);
    succeeded("the SDK's crate", library.arg(repository.join("sdk/rust/src/lib.rs")).output()?)?;
    let mut module = rustc();
    module.args(["--crate-type", "cdylib", "-C", "linker=wasm-ld", "--extern"]);
    module.arg(format!("mswitch_module={}", crate_file.display())).arg("-o").arg(&out);
    succeeded(source, module.arg(repository.join(source)).output()?)?;
    Ok(format!("wasm:{}", out.display()))
}

/// Compiles a C file of the repository to a program that aborts at undefined behaviour.
pub fn program(source: &str, folder: &Path) -> Result<PathBuf> {
    let out = folder.join(name_of(source)?).with_extension("bin");
    let options = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"];
    compile(Command::new("cc").args(["-O1", "-g"]), source, &out, &options)?;
    Ok(out)
}
