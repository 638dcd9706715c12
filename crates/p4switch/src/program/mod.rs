//! Programs: from source text, or what p4c made of it for BMv2, to what runs.

mod bundle;
mod compare;
mod config;

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use p4runtime_proto::P4Info;
use pipeline::Checked;
use prost::Message;

use p4::place::Places;
use p4::preprocess::Options;

use crate::schema::Schema;

/// A program that can run.
#[derive(Debug)]
pub struct Program {
    /// As the pipeline runs it.
    pub checked: Checked,
    /// What controllers can address.
    pub info: Arc<P4Info>,
    /// Warnings of the front end, rendered.
    pub warnings: String,
    /// Places of its parts in the source; none in what p4c made.
    pub places: Places,
    schema: Schema,
    bundle: Vec<u8>,
    /// Files that it was read from, as they were.
    files: Vec<(PathBuf, Option<Stamp>)>,
}

/// State of a file: device, inode, size, and time of modification.
type Stamp = (u64, u64, u64, i64, i64);

fn stamp(file: &Path) -> Option<Stamp> {
    let is = std::fs::metadata(file).ok()?;
    Some((is.dev(), is.ino(), is.size(), is.mtime(), is.mtime_nsec()))
}

/// Reasons why a program cannot run.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// Its file cannot be read.
    #[error("{0}")]
    Read(#[from] io::Error),
    /// Errors in it, rendered with their places.
    #[error("{0}")]
    Program(String),
}

impl Program {
    /// Reads a program's file.
    ///
    /// # Errors
    /// The file cannot be read, or the program cannot run.
    pub fn file(path: &Path, options: &Options) -> Result<Self, LoadError> {
        let mut program = with_stack(|| Self::of(p4::compile::file(path, options)?))?;
        program.files.iter_mut().for_each(|(file, known)| *known = stamp(file));
        Ok(program)
    }

    /// Compiles a program given as text.
    ///
    /// # Errors
    /// The program cannot run.
    pub fn text(name: &str, text: &str, options: &Options) -> Result<Self, LoadError> {
        with_stack(|| Self::of(p4::compile::text(name, text, options)))
    }

    /// Lowers the JSON that p4c made for BMv2, with the P4Info that it made beside it.
    ///
    /// # Errors
    /// The program cannot run, or the P4Info is another program's.
    pub fn bmv2(json: &[u8], info: &P4Info) -> Result<Self, LoadError> {
        with_stack(|| {
            let checked = bmv2::lower(json, Some(info));
            let checked = checked.map_err(|refusal| LoadError::Program(format!("{refusal}\n")))?;
            let checked = crate::unused::added(checked, info);
            let schema = Schema::of(info, &checked);
            Ok(Self {
                checked,
                info: Arc::new(info.clone()),
                warnings: String::new(),
                places: Places::default(),
                schema,
                bundle: json.to_vec(),
                files: Vec::new(),
            })
        })
    }

    /// Reads a file of BMv2's JSON, and that of its P4Info, in text form or binary.
    ///
    /// # Errors
    /// A file cannot be read, or the program cannot run.
    pub fn bmv2_file(path: &Path, info: &Path) -> Result<Self, LoadError> {
        let files = [path, info].map(|file| (file.to_path_buf(), stamp(file)));
        let json = std::fs::read(path)?;
        let bytes = std::fs::read(info)?;
        let read = match std::str::from_utf8(&bytes).map(p4::info::read) {
            Ok(Ok(read)) => read,
            text => P4Info::decode(bytes.as_slice()).map_err(|_| {
                let reason = match text {
                    Ok(Err(reason)) => reason,
                    _ => "it is neither text nor a binary message".to_owned(),
                };
                LoadError::Program(format!("{}: no P4Info: {reason}\n", info.display()))
            })?,
        };
        let mut program = Self::bmv2(&json, &read)?;
        program.files = files.into();
        Ok(program)
    }

    /// What controllers can address, by id.
    pub(crate) fn schema(&self) -> &Schema {
        &self.schema
    }

    /// Whether a file that it was read from is another one by now. A file that was deleted is not a newer one.
    pub fn is_outdated(&self) -> bool {
        let is_new = |(file, known): &(PathBuf, Option<Stamp>)| {
            known.is_some() && stamp(file).is_some_and(|now| Some(now) != *known)
        };
        self.files.iter().any(is_new)
    }

    fn of(mut front: p4::compile::Front) -> Result<Self, LoadError> {
        let checked = front.lower();
        let info = front.info.take();
        let text = p4::diagnostic::render(&front.sources, &front.diagnostics, false);
        match (checked, info) {
            (Some(checked), Some(info)) if front.diagnostics.errors() == 0 => {
                let checked = crate::unused::added(checked, &info);
                let (schema, bundle) = (Schema::of(&info, &checked), bundle::of(&front, &info)?);
                let places = front.places(&checked);
                // Names of files that the front end brings along are in `<>`.
                let files = front.sources.files().iter().map(|file| file.name.as_str());
                let files =
                    files.filter(|name| !name.starts_with('<')).map(|name| (name.into(), None)).collect();
                Ok(Self { checked, info: Arc::new(info), warnings: text, places, schema, bundle, files })
            }
            _ => Err(LoadError::Program(text)),
        }
    }
}

/// Stack of the front end: it follows a program's nesting, which it bounds, deeper than other threads' stacks allow.
const STACK: usize = 256 << 20;

/// Runs the front end on a thread of its own.
fn with_stack(load: impl FnOnce() -> Result<Program, LoadError> + Send) -> Result<Program, LoadError> {
    let failed = || LoadError::Program("the compiler failed; this is a bug in mswitch".to_owned());
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("p4-compiler".into()).stack_size(STACK);
        thread.spawn_scoped(scope, load)?.join().unwrap_or_else(|_| Err(failed()))
    })
}
