//! WebAssembly modules compiled to the machine's code, once for each content of a file: kept in memory, and on disk
//! for the next start.
//!
//! Files lie in the folder that systemd names (`CACHE_DIRECTORY`), else `mswitch` in the user's cache folder (XDG
//! base directories; `/var/cache` for root). Each is called by a hash of the module and of the compiler, and begins
//! with a hash of the rest.
//!
//! Invariant: code is loaded only from this user's file in a folder that only this user can write to, and only if it
//! is complete: it runs with the daemon's rights. Without such a folder, modules are compiled each time.

use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;
use std::time::{Duration, Instant, SystemTime};

use sha2::{Digest, Sha256};
use wasmtime::{Engine, Module};

/// Compiled modules that are kept in memory.
const KEPT: usize = 16;
/// And on disk.
const FILES: usize = 64;
/// The longest file, bytes.
const MAX_FILE: u64 = 256 << 20;

/// Compilations that take longer are logged.
const LONG: Duration = Duration::from_secs(10);

/// A compilation in progress: the module's hash, its file, and the threads that wait for the result.
struct InProgress {
    hash: [u8; 32],
    file: PathBuf,
    threads: Vec<ThreadId>,
}

static IN_PROGRESS: Mutex<Vec<InProgress>> = Mutex::new(Vec::new());
/// Notified when a compilation ends.
static ENDED: Condvar = Condvar::new();

fn in_progress() -> MutexGuard<'static, Vec<InProgress>> {
    IN_PROGRESS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the file that a thread compiles, or whose compilation by another thread it waits for.
pub(crate) fn compiling(thread: ThreadId) -> Option<PathBuf> {
    let in_progress = in_progress();
    in_progress.iter().find(|one| one.threads.contains(&thread)).map(|one| one.file.clone())
}

/// Entry in [`IN_PROGRESS`], for as long as it exists.
struct Claim([u8; 32]);

impl Claim {
    /// Waits until no other thread compiles this module, then claims its compilation.
    fn new(hash: [u8; 32], file: &Path) -> Self {
        let mut list = in_progress();
        let thread = std::thread::current().id();
        while let Some(other) = list.iter_mut().find(|one| one.hash == hash) {
            if !other.threads.contains(&thread) {
                other.threads.push(thread);
            }
            list = ENDED.wait(list).unwrap_or_else(PoisonError::into_inner);
        }
        list.push(InProgress { hash, file: file.into(), threads: vec![thread] });
        Self(hash)
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        in_progress().retain(|one| one.hash != self.0);
        ENDED.notify_all();
    }
}

/// Returns the compiled module of a file, from the cache if possible. The error is the compiler's. Threads that ask for
/// the same module share one compilation.
pub(crate) fn module(engine: &Engine, file: &Path, bytes: &[u8]) -> wasmtime::Result<Module> {
    static COMPILED: Mutex<Vec<([u8; 32], Module)>> = Mutex::new(Vec::new());
    let kept = || COMPILED.lock().unwrap_or_else(PoisonError::into_inner);
    let hash: [u8; 32] = Sha256::digest(bytes).into();
    let _claim = Claim::new(hash, file);
    if let Some((_, module)) = kept().iter().find(|(there, _)| *there == hash) {
        return Ok(module.clone());
    }
    let begun = Instant::now();
    let (module, origin) = read_or_compile(engine, bytes, folder().as_deref())?;
    if origin == Origin::Compiled && begun.elapsed() >= LONG {
        tracing::info!("wasm:{}: compiled in {} s", file.display(), begun.elapsed().as_secs());
    }
    let mut kept = kept();
    if kept.len() >= KEPT {
        kept.remove(0);
    }
    kept.push((hash, module.clone()));
    Ok(module)
}

/// Origin of a compiled module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Origin {
    Compiled,
    Disk,
}

fn folder() -> Option<PathBuf> {
    let named = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let users = || match rustix::process::geteuid().is_root() {
        true => Some(PathBuf::from("/var/cache")),
        false => named("XDG_CACHE_HOME").or_else(|| Some(named("HOME")?.join(".cache"))),
    };
    named("CACHE_DIRECTORY").or_else(|| Some(users()?.join("mswitch")))
}

fn read_or_compile(
    engine: &Engine,
    bytes: &[u8],
    folder: Option<&Path>,
) -> wasmtime::Result<(Module, Origin)> {
    let file = folder.filter(|folder| is_ours(folder)).map(|folder| folder.join(name(engine, bytes)));
    if let Some(module) = file.as_deref().and_then(|file| read(engine, file)) {
        return Ok((module, Origin::Disk));
    }
    let module = Module::from_binary(engine, bytes)?;
    if let Some(file) = file
        && let Ok(code) = module.serialize()
        && let Err(error) = write(&file, &code)
    {
        tracing::debug!("{}: {error}; the module is compiled again next time", file.display());
    }
    Ok((module, Origin::Compiled))
}

/// Creates a folder if needed; returns whether only this user can write to it.
fn is_ours(folder: &Path) -> bool {
    let _ = fs::DirBuilder::new().mode(0o700).create(folder);
    let ours = rustix::process::geteuid().as_raw();
    fs::symlink_metadata(folder).is_ok_and(|is| is.is_dir() && is.uid() == ours && is.mode() & 0o022 == 0)
}

/// File name of a module for this compiler and its settings.
fn name(engine: &Engine, bytes: &[u8]) -> String {
    let mut compiler = DefaultHasher::new();
    engine.precompile_compatibility_hash().hash(&mut compiler);
    let hash = Sha256::new().chain_update(compiler.finish().to_le_bytes()).chain_update(bytes).finalize();
    hash.iter().map(|byte| format!("{byte:02x}")).chain([".cwasm".into()]).collect()
}

fn read(engine: &Engine, file: &Path) -> Option<Module> {
    let is = fs::symlink_metadata(file).ok()?;
    let ours = rustix::process::geteuid().as_raw();
    if !is.is_file() || is.uid() != ours || is.mode() & 0o022 != 0 || is.len() > MAX_FILE {
        return None;
    }
    let bytes = fs::read(file).ok()?;
    let (hash, code) = bytes.split_at_checked(32)?;
    if Sha256::digest(code)[..] != *hash {
        return None;
    }
    // The file used last is removed last.
    let _ = File::options().append(true).open(file).and_then(|file| file.set_modified(SystemTime::now()));
    // SAFETY: only this user can have written the folder and the file, and the hash shows that the file is complete.
    unsafe { Module::deserialize(engine, code) }.ok()
}

fn write(file: &Path, code: &[u8]) -> io::Result<()> {
    let Some(folder) = file.parent() else { return Ok(()) };
    make_room(folder)?;
    // Renamed when it is whole: another daemon may do the same at the same time.
    let mut fresh = tempfile::Builder::new().prefix(".fresh-").tempfile_in(folder)?;
    fresh.write_all(&Sha256::digest(code))?;
    fresh.write_all(code)?;
    fresh.persist(file)?;
    Ok(())
}

/// Removes the files used longest ago, to make room for one more.
fn make_room(folder: &Path) -> io::Result<()> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "cwasm") {
            files.push((fs::metadata(&path)?.modified()?, path));
        }
    }
    files.sort();
    let many = (files.len() + 1).saturating_sub(FILES);
    files.iter().take(many).try_for_each(|(_, path)| fs::remove_file(path))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// The shortest module.
    const EMPTY: &[u8] = b"\0asm\x01\0\0\0";

    fn origin(folder: &Path) -> Origin {
        read_or_compile(&Engine::default(), EMPTY, Some(folder)).unwrap().1
    }

    #[test]
    fn what_was_compiled_is_read_if_it_is_whole_and_nobody_elses() {
        let outer = tempfile::tempdir().unwrap();
        let folder = outer.path().join("cache");
        assert_eq!([origin(&folder), origin(&folder)], [Origin::Compiled, Origin::Disk]);
        let file = folder.join(name(&Engine::default(), EMPTY));
        let damages: [fn(&mut Vec<u8>); 3] =
            [|bytes| bytes[40] ^= 1, |bytes| bytes.truncate(100), Vec::clear];
        for damage in damages {
            let mut bytes = fs::read(&file).unwrap();
            damage(&mut bytes);
            fs::write(&file, bytes).unwrap();
            assert_eq!([origin(&folder), origin(&folder)], [Origin::Compiled, Origin::Disk]);
        }
        for (path, mode) in [(&file, 0o666), (&folder, 0o777)] {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(origin(&folder), Origin::Compiled, "{path:?}");
            fs::set_permissions(path, fs::Permissions::from_mode(mode & 0o755)).unwrap();
            assert_eq!(origin(&folder), Origin::Disk);
        }
        let link = outer.path().join("link");
        std::os::unix::fs::symlink(&folder, &link).unwrap();
        assert_eq!(origin(&link), Origin::Compiled);
        assert_eq!(read_or_compile(&Engine::default(), EMPTY, None).unwrap().1, Origin::Compiled);
    }

    #[test]
    fn as_many_are_kept_as_there_is_room_for() {
        let folder = tempfile::tempdir().unwrap();
        for i in 0..FILES + 5 {
            write(&folder.path().join(format!("{i}.cwasm")), b"code").unwrap();
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), FILES);
        assert!(folder.path().join(format!("{}.cwasm", FILES + 4)).exists());
    }

    #[test]
    fn threads_share_one_compilation_and_a_late_one_is_named() {
        let (hash, file) = ([7; 32], Path::new("/etc/mswitch/slow.wasm"));
        let first = Claim::new(hash, file);
        let own = std::thread::current().id();
        assert_eq!(compiling(own).as_deref(), Some(file));
        let second = std::thread::spawn(move || {
            drop(Claim::new(hash, file));
            std::thread::current().id()
        });
        let waiting = second.thread().id();
        while compiling(waiting).is_none() {
            std::thread::yield_now();
        }
        drop(first);
        assert_eq!(second.join().unwrap(), waiting);
        assert_eq!((compiling(own), compiling(waiting)), (None, None));
    }
}
