//! Programs: from source text to what runs.

mod bundle;
mod compare;
mod config;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use p4runtime_proto::P4Info;
use pipeline::Checked;

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
    schema: Schema,
    origin: Origin,
}

/// Where a program was read from.
#[derive(Debug)]
enum Origin {
    File(PathBuf, Options),
    Text(String, String, Options),
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
        let origin = Origin::File(path.to_owned(), options.clone());
        Self::of(p4::compile::file(path, options)?, origin)
    }

    /// Compiles a program given as text.
    ///
    /// # Errors
    /// The program cannot run.
    pub fn text(name: &str, text: &str, options: &Options) -> Result<Self, LoadError> {
        let origin = Origin::Text(name.to_owned(), text.to_owned(), options.clone());
        Self::of(p4::compile::text(name, text, options), origin)
    }

    /// What controllers can address, by id.
    pub(crate) fn schema(&self) -> &Schema {
        &self.schema
    }

    fn of(mut front: p4::compile::Front, origin: Origin) -> Result<Self, LoadError> {
        let checked = front.lower();
        let info = front
            .program
            .as_ref()
            .map(|program| p4::info::of(program, &front.sources, &mut front.diagnostics));
        let text = p4::diagnostic::render(&front.sources, &front.diagnostics, false);
        match (checked, info) {
            (Some(checked), Some(info)) if front.diagnostics.errors() == 0 => {
                let checked = crate::unused::added(checked, &info);
                let schema = Schema::of(&info, &checked);
                Ok(Self { checked, info: Arc::new(info), warnings: text, schema, origin })
            }
            _ => Err(LoadError::Program(text)),
        }
    }
}
