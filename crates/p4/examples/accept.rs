//! Reads the sample programs of a checkout of p4c, whose path is in the environment variable `P4C`, and prints those
//! that fail.
//!
//! ```text
//! P4C=PATH cargo run -p mswitch-p4 --example accept -- parse [-I FOLDER]... [FILE]...
//! ```
//!
//! Without files: all of `p4_16_samples`, of which none may fail, and all of `p4_16_errors`, which are only counted.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{env, fs, io};

use mswitch_p4::parse::{self, Parsed};
use mswitch_p4::preprocess::Options;

fn main() -> ExitCode {
    match run() {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
    }
}

/// Number of programs that failed and must not.
fn run() -> io::Result<usize> {
    let wrong = |message: &str| io::Error::new(io::ErrorKind::InvalidInput, message);
    let mut args = env::args().skip(1);
    if args.next().as_deref() != Some("parse") {
        return Err(wrong("expected the stage to run: parse"));
    }
    let mut options = Options::default();
    let mut files = Vec::new();
    while let Some(arg) = args.next() {
        if arg == "-I" {
            options.include.push(args.next().ok_or_else(|| wrong("-I takes a folder"))?.into());
        } else {
            files.push(PathBuf::from(arg));
        }
    }
    if !files.is_empty() {
        return judge(&files, &options, true);
    }
    let root =
        env::var_os("P4C").ok_or_else(|| wrong("the variable P4C has the path of a checkout of p4c"))?;
    let data = Path::new(&root).join("testdata");
    let failed = judge(&programs(&data.join("p4_16_samples"))?, &options, true)?;
    judge(&programs(&data.join("p4_16_errors"))?, &options, false)?;
    Ok(failed)
}

fn programs(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        // Links may point to what a partial checkout lacks.
        if path.extension().is_some_and(|e| e == "p4") && path.is_file() {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

fn judge(files: &[PathBuf], options: &Options, show: bool) -> io::Result<usize> {
    let mut failed = 0;
    for path in files {
        let Parsed { diagnostics, sources, .. } = parse::file(path, options)?;
        if diagnostics.errors() > 0 {
            failed += 1;
            if show {
                println!("{}:", path.display());
                for d in diagnostics.list().iter().take(3) {
                    let (line, column) = sources.line(d.label.span);
                    let name = sources.get(d.label.span.file).map_or("", |f| &f.name);
                    println!("  {name}:{line}:{column}: {}", d.message);
                }
            }
        }
    }
    println!("{} programs, {failed} with errors", files.len());
    Ok(failed)
}
