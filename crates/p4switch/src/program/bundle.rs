//! Bundles: a program in one file, with what it includes.
//!
//! A bundle is a line that names the format and its version, then a message of protocol buffers: the program's text
//! behind the preprocessor and its P4Info. It needs no folders for includes.

use std::fmt::Write;

use p4::diagnostic::Diagnostics;
use p4::lex::{Token, TokenKind};
use p4::preprocess;
use p4::source::Sources;
use p4runtime_proto::P4Info;
use prost::Message;

use super::{LoadError, Origin, Program};

/// First line of a bundle; the number is the format's version.
const FIRST_LINE: &[u8] = b"mswitch P4 bundle 1\n";
/// Start of the first line of bundles of any version.
const ANY_VERSION: &[u8] = b"mswitch P4 bundle ";

/// The message in a bundle.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Bundle {
    /// Name of the program's file.
    #[prost(string, tag = "1")]
    pub(super) name: String,
    /// Program behind the preprocessor.
    #[prost(string, tag = "2")]
    pub(super) text: String,
    /// What controllers can address, for tools that read bundles.
    #[prost(message, optional, tag = "3")]
    pub(super) info: Option<P4Info>,
}

impl Bundle {
    /// Reads a bundle; `None` if the bytes are none.
    pub(super) fn read(bytes: &[u8]) -> Option<Result<Self, String>> {
        match bytes.strip_prefix(FIRST_LINE) {
            Some(message) => {
                Some(Self::decode(message).map_err(|error| format!("the bundle is damaged: {error}")))
            }
            None if bytes.starts_with(ANY_VERSION) => Some(Err(
                "the bundle is of another version: make it anew with `mswitch p4 compile`".to_owned(),
            )),
            None => None,
        }
    }

    fn write(&self) -> Vec<u8> {
        let mut bytes = FIRST_LINE.to_vec();
        bytes.extend(self.encode_to_vec());
        bytes
    }
}

impl Program {
    /// The program as a bundle, which controllers send as device config.
    ///
    /// # Errors
    /// The program's file, which is read again, has changed or cannot be read.
    pub fn bundle(&self) -> Result<Vec<u8>, LoadError> {
        let (mut sources, mut diagnostics) = (Sources::default(), Diagnostics::default());
        let tokens = match &self.origin {
            Origin::File(path, options) => preprocess::load(path, options, &mut sources, &mut diagnostics)?,
            Origin::Text(name, text, options) => {
                preprocess::load_text(name, text, options, &mut sources, &mut diagnostics)
            }
        };
        if diagnostics.errors() > 0 {
            return Err(LoadError::Program(p4::diagnostic::render(&sources, &diagnostics, false)));
        }
        let name = sources.files().first().map_or("program.p4", |file| file.name.as_str());
        let name = name.rsplit('/').next().unwrap_or(name).to_owned();
        Ok(Bundle { name, text: text(&tokens), info: Some((*self.info).clone()) }.write())
    }
}

/// The text of tokens.
fn text(tokens: &[Token]) -> String {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut text = String::new();
    for token in tokens.iter().filter(|token| token.kind != TokenKind::End) {
        let words = text.ends_with(is_word) && token.text.starts_with(is_word);
        if token.starts_line {
            text.push('\n');
        } else if !token.joined || words {
            text.push(' ');
        }
        // Writing to a string cannot fail.
        let _ = write!(text, "{}", token.text);
    }
    text.push('\n');
    text
}
