//! P4-16 (1.2.5): programs are read, checked and lowered into the match-action pipeline.
//!
//! | module         | room for                                                                    |
//! |----------------|-----------------------------------------------------------------------------|
//! | [`source`]     | files and places in them                                                    |
//! | [`diagnostic`] | errors and warnings                                                         |
//! | [`ast`]        | syntax trees: what a program says                                           |
//! | [`check`]      | from the one to the other, or to errors                                     |
//! | [`hir`]        | checked programs: what it means                                             |
#![forbid(unsafe_code)]

pub mod ast;
pub mod check;
pub mod diagnostic;
pub mod hir;
pub mod source;
