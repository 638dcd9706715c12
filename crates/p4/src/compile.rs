//! From a file to a program that runs: all steps in a row.

use std::io;
use std::path::Path;

use pipeline::Checked;

use crate::check::check;
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::info::P4Info;
use crate::lex::Token;
use crate::lower::{lower, runs};
use crate::parse::{self, Parsed};
use crate::place::Places;
use crate::preprocess::Options;
use crate::source::Sources;
use crate::{ast, hir, info, place};

/// A program as far as it came.
#[derive(Debug, Default)]
pub struct Front {
    /// Files.
    pub sources: Sources,
    /// Errors and warnings so far.
    pub diagnostics: Diagnostics,
    /// The program behind the preprocessor.
    pub tokens: Vec<Token>,
    /// Syntax tree.
    pub tree: ast::Program,
    /// Checked program; none if there are errors.
    pub program: Option<hir::Program>,
    /// What controllers can address in a program for an architecture that the switch runs.
    pub info: Option<P4Info>,
}

/// Reads and checks a program's file.
///
/// # Errors
/// The file cannot be read. Errors in the program are diagnostics.
pub fn file(path: &Path, options: &Options) -> io::Result<Front> {
    Ok(checked(parse::file(path, options)?))
}

/// Checks a program given as text; see [`crate::preprocess::load_text`].
pub fn text(name: &str, text: &str, options: &Options) -> Front {
    checked(parse::text(name, text, options))
}

fn checked(parsed: Parsed) -> Front {
    let Parsed { tokens, program: tree, sources, mut diagnostics } = parsed;
    let program = match diagnostics.errors() {
        // What could not be parsed is missing everywhere else.
        0 => check(&tree, &mut diagnostics),
        _ => None,
    };
    let program = program.filter(|_| diagnostics.errors() == 0);
    // Programs that a controller could not address are refused, too: with two tables of one name, for example.
    let runs = program.as_ref().filter(|program| runs(program));
    let info = runs.map(|program| info::of(program, &sources, &mut diagnostics));
    let program = program.filter(|_| diagnostics.errors() == 0);
    Front { sources, diagnostics, tokens, tree, program, info }
}

impl Front {
    /// Whether the program is for an architecture that the switch runs.
    pub fn runs(&self) -> bool {
        self.program.as_ref().is_some_and(runs)
    }

    /// The places of what the program was lowered to.
    pub fn places(&self, lowered: &pipeline::ir::Program) -> Places {
        self.program
            .as_ref()
            .map_or_else(Places::default, |program| Places::new(program, lowered, &self.sources))
    }

    /// Lowers the program; `None` if there are errors, which are added to the diagnostics.
    pub fn lower(&mut self) -> Option<Checked> {
        let program = self.program.as_ref()?;
        let name = self.sources.files().first().map_or("", |file| file.name.as_str());
        let name = Path::new(name).file_stem().map_or("p4".into(), |stem| stem.to_string_lossy());
        let lowered = match lower(program, &name) {
            Ok(lowered) => lowered,
            Err(diagnostics) => {
                diagnostics.list().iter().for_each(|d| self.diagnostics.push(d.clone()));
                return None;
            }
        };
        match Checked::new(lowered) {
            Ok(checked) => Some(checked),
            Err(errors) => {
                // Bounds of the pipeline that the program exceeds.
                for error in errors {
                    let span = place::of(program, &error);
                    self.diagnostics.push(Diagnostic::error(span, error.to_string()));
                }
                None
            }
        }
    }
}
