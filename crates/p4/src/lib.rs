//! P4-16 (1.2.5): programs are read, checked and lowered into the match-action pipeline.
//!
//! | module         | room for                                                                    |
//! |----------------|-----------------------------------------------------------------------------|
//! | [`source`]     | files and places in them                                                    |
//! | [`diagnostic`] | errors and warnings                                                         |
//! | [`mod@include`] | the core library and architectures that programs include                    |
//! | [`preprocess`] | includes, macros and conditional parts: files into tokens                   |
//! | [`lex`]        | tokens                                                                      |
//! | [`parse`]      | the parser: tokens into a syntax tree                                       |
//! | [`ast`]        | syntax trees: what a program says                                           |
//! | [`check`]      | the checker: from a syntax tree to a checked program                        |
//! | [`hir`]        | checked programs: what it means                                             |
//! | [`constant`]   | values of expressions once constructors have their arguments                |
//! | [`instantiate`] | the objects of a program, with names and arguments                         |
//! | [`info`]       | P4Info: what a controller can address                                       |
//! | [`lower`]      | from checked programs to the pipeline's                                     |
//! | [`compile`]    | all steps in a row                                                          |
//! | [`split`]      | programs of line cards from the program of a switch                         |
//! | [`stf`]        | test cases: commands, packets and the packets expected                      |
#![forbid(unsafe_code)]

pub mod ast;
pub mod check;
pub mod compile;
pub mod constant;
pub mod diagnostic;
pub mod hir;
pub mod include;
pub mod info;
pub mod instantiate;
pub mod lex;
pub mod lower;
pub mod parse;
pub mod place;
pub mod preprocess;
pub mod similar;
pub mod source;
pub mod split;
pub mod stf;
