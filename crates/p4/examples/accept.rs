//! Reads the sample programs of a checkout of p4c, whose path is in the environment variable `P4C`, and prints those
//! that fail.
//!
//! ```text
//! P4C=PATH cargo run -p mswitch-p4 --example accept -- parse|check [-I FOLDER]... [FILE]...
//! ```
//!
//! Without files: all of `p4_16_samples`, of which none may fail, and all of `p4_16_errors`, which are only counted by
//! `parse`. `check` compares the lines of their errors with those in `p4_16_errors_outputs`, and prints the programs that
//! it accepts or refuses at other lines.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{env, fs, io};

use mswitch_p4::diagnostic::{Diagnostics, Severity};
use mswitch_p4::preprocess::Options;
use mswitch_p4::source::Sources;
use mswitch_p4::{compile, parse};

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
    let check = match args.next().as_deref() {
        Some("parse") => false,
        Some("check") => true,
        _ => return Err(wrong("expected the stage to run: parse or check")),
    };
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
        return judge(&files, &options, check, true);
    }
    let root =
        env::var_os("P4C").ok_or_else(|| wrong("the variable P4C has the path of a checkout of p4c"))?;
    let data = Path::new(&root).join("testdata");
    let failed = judge(&programs(&data.join("p4_16_samples"))?, &options, check, true)?;
    let wrong = programs(&data.join("p4_16_errors"))?;
    if check {
        compare(&wrong, &data.join("p4_16_errors_outputs"), &options)?;
    } else {
        judge(&wrong, &options, check, false)?;
    }
    Ok(failed)
}

/// The diagnostics of a program, parsed and, if asked for, checked.
fn read(path: &Path, options: &Options, check: bool) -> io::Result<(Diagnostics, Sources)> {
    if check {
        let front = compile::file(path, options)?;
        return Ok((front.diagnostics, front.sources));
    }
    let parsed = parse::file(path, options)?;
    Ok((parsed.diagnostics, parsed.sources))
}

/// Compares the lines of errors with those that p4c finds.
fn compare(files: &[PathBuf], outputs: &Path, options: &Options) -> io::Result<()> {
    let (mut right, mut elsewhere, mut accepted) = (0, 0, 0);
    for path in files {
        let (diagnostics, sources) = read(path, options, true)?;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let expected = fs::read_to_string(outputs.join(format!("{name}-stderr"))).unwrap_or_default();
        let expected = lines_of_errors(&expected, &name);
        let errors = diagnostics.list().iter().filter(|d| d.severity == Severity::Error);
        let found: Vec<(usize, &str)> =
            errors.map(|d| (sources.line(d.label.span).0, d.message.as_str())).collect();
        if found.is_empty() {
            accepted += 1;
            println!("accepted: {name}, expected errors in lines {expected:?}");
        } else if expected.is_empty() || found.iter().any(|(line, _)| expected.contains(line)) {
            right += 1;
        } else {
            elsewhere += 1;
            println!("elsewhere: {name}, expected {expected:?}, found {found:?}");
        }
    }
    println!(
        "{} programs: {right} refused at a right line, {elsewhere} elsewhere, {accepted} accepted",
        files.len()
    );
    Ok(())
}

/// Lines of a file in messages like `NAME(LINE): … error: …` and in the places under them.
fn lines_of_errors(messages: &str, name: &str) -> Vec<usize> {
    let places = messages.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix('('));
    places.filter_map(|place| place.split(')').next()?.parse().ok()).collect()
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

fn judge(files: &[PathBuf], options: &Options, check: bool, show: bool) -> io::Result<usize> {
    let mut failed = 0;
    for path in files {
        let (diagnostics, sources) = read(path, options, check)?;
        if diagnostics.errors() > 0 {
            failed += 1;
            if show {
                println!("{}:", path.display());
                let errors = diagnostics.list().iter().filter(|d| d.severity == Severity::Error);
                for d in errors.take(3) {
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
