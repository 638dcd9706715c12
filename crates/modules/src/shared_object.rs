//! Shared objects: each load has variables of its own, and a file that is replaced later changes nothing.

use std::io::Write;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU64, Ordering};

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW, Symbol};
use rustix::fs::{MemfdFlags, memfd_create};

use crate::crash;
use crate::module::not_exported;

/// Whether a file can be one. To be called before its code runs: crashes in it are attributed from then on.
pub(crate) fn check(file: &[u8]) -> Result<(), String> {
    if !file.starts_with(b"\x7fELF") {
        return Err("not a shared object; link it with -shared".into());
    }
    crash::install();
    Ok(())
}

/// Loads a copy of a file, which runs its initializers.
pub(crate) fn open(file: &[u8]) -> Result<Library, String> {
    let copied = |error: std::io::Error| format!("cannot copy it to memory: {error}");
    let memory = memfd_create("mswitch-module", MemfdFlags::CLOEXEC).map_err(|error| copied(error.into()))?;
    let mut copy = std::fs::File::from(memory);
    copy.write_all(file).map_err(copied)?;
    // The loader takes two files of one name for one, even if the first is closed: each name is new, by the number of
    // slashes.
    static LOADED: AtomicU64 = AtomicU64::new(0);
    let number = LOADED.fetch_add(1, Ordering::Relaxed);
    let slashes: String =
        (0..u64::BITS).map(|bit| if number >> bit & 1 == 0 { "./" } else { ".//" }).collect();
    let name = format!("/proc/self/fd/{slashes}{}", copy.as_raw_fd());
    // SAFETY: native modules are trusted: whoever configures one has their code run here.
    let library = unsafe { Library::open(Some(&name), RTLD_NOW | RTLD_LOCAL) };
    library
        .map_err(|error| format!("cannot load it: {}", error.to_string().replace(&format!("{name}: "), "")))
}

/// Looks up a function.
///
/// # Safety
/// `T` is a pointer to a function of the type that it has.
pub(crate) unsafe fn function<T: Copy>(library: &Library, name: &str) -> Result<T, String> {
    // SAFETY: the caller's promise.
    let symbol: Symbol<T> = unsafe { library.get(name.as_bytes()) }.map_err(|_| not_exported(name))?;
    Ok(*symbol)
}
