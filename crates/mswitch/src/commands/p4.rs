//! `mswitch p4`: P4 programs are checked and tested in this process, without a daemon; those that run on bridges have
//! commands of the logic `p4`.

mod split;
mod xdp;

use std::fs;
use std::io::{IsTerminal, stderr};
use std::path::{Path, PathBuf};

use control::client::Client;
use control::p4::LOGIC;
use control::proto;
use p4::compile::{self as front, Front};
use p4::diagnostic::{self, Severity};
use p4::info::Form;
use p4::preprocess::Options;
use p4::source::{Sources, Span};
use p4::stf::{self, Case};
use p4switch::{LoadError, Program};
use pipeline::env::check_functions;
use serde::Serialize;

use self::split::Arguments;
use super::{answer, print, print_bytes};
use crate::cli::{Output, P4Command, P4Read, P4Source, P4Write};
use crate::failure::Failure;
use crate::render;

pub(super) fn run(command: P4Command) -> Result<(), Failure> {
    match command {
        P4Command::Check { files, source, output } => check(&files, &source, output.json),
        P4Command::Info { program, binary, json, source } => {
            let form = match (binary, json) {
                (true, _) => Form::Binary,
                (_, true) => Form::Json,
                _ => Form::Text,
            };
            info(&program, form, &source)
        }
        P4Command::Test { program, cases, trace, functions, xdp, source } => {
            let functions = functions.unwrap_or_default().display().to_string();
            let functions = control::p4::functions(&functions).map_err(Failure::new)?;
            let options = stf::Options { trace, functions, ..Default::default() };
            test(&program, &cases, &options, xdp, &source)
        }
        P4Command::Compile { program, output, source } => compile(&program, &output, &source),
        P4Command::Split { program, cards, link, output, test, source } => {
            let cards = cards.into_iter().map(|ports| ports.0).collect();
            split::run(Arguments { program, cards, link, output, cases: test }, &source)
        }
        // Asked of a daemon.
        _ => Ok(()),
    }
}

/// Whether a command needs no daemon.
pub(super) fn is_local(command: &P4Command) -> bool {
    use P4Command::{Check, Compile, Info, Split, Test};
    matches!(command, Check { .. } | Info { .. } | Test { .. } | Compile { .. } | Split { .. })
}

/// Runs a command on a program that a bridge runs.
pub(super) async fn ask(client: &mut Client, command: P4Command) -> Result<(), Failure> {
    let read = |verb: &str, read: P4Read| {
        let words = [verb.to_owned()].into_iter().chain(read.name).collect();
        (read.bridge, words, read.output)
    };
    let write = |verb: &str, write: P4Write| {
        (write.bridge, vec![verb.to_owned(), write.entry.join(" ")], Output { json: false })
    };
    let (bridge, command, output) = match command {
        P4Command::Tables(args) => read("tables", args),
        P4Command::Counters(args) => read("counters", args),
        P4Command::Registers(args) => read("registers", args),
        P4Command::Add(args) => write("add", args),
        P4Command::Mod(args) => write("mod", args),
        P4Command::Del(args) => write("del", args),
        P4Command::Meters(args) => read("meters", args),
        P4Command::Groups { bridge, output } => (bridge, vec!["groups".to_owned()], output),
        // These need no daemon.
        P4Command::Check { .. }
        | P4Command::Info { .. }
        | P4Command::Test { .. }
        | P4Command::Split { .. }
        | P4Command::Compile { .. } => {
            return Ok(());
        }
    };
    match client.call_logic(proto::CallLogicRequest { bridge: bridge.clone(), command }).await {
        Ok(reply) => answer(output, &reply.into_inner(), render::logic::reply),
        Err(status) => Err(other_logic(client, &bridge).await.unwrap_or_else(|| status.into())),
    }
}

/// The failure of a command on a bridge that runs no P4 program.
async fn other_logic(client: &mut Client, bridge: &str) -> Option<Failure> {
    let request = proto::GetLogicRequest { bridge: bridge.into(), table: String::new(), rows: Some(0) };
    let name = client.get_logic(request).await.ok()?.into_inner().name;
    (name != LOGIC).then(|| {
        Failure::new(format_args!(
            "bridge \"{bridge}\" has the logic `{name}`; set a P4 program: mswitch logic set {bridge} p4:FILE"
        ))
    })
}

fn compile(program: &Path, output: &Path, source: &P4Source) -> Result<(), Failure> {
    let refused = |error| match error {
        LoadError::Read(error) => Failure::from(error).about(program.display()),
        LoadError::Program(text) => {
            eprint!("{text}");
            Failure::differs()
        }
    };
    check_source(program)?;
    let loaded = Program::file(program, &options(source)).map_err(refused)?;
    eprint!("{}", loaded.warnings);
    fs::write(output, loaded.bundle()).map_err(|error| Failure::from(error).about(output.display()))
}

fn options(source: &P4Source) -> Options {
    Options { include: source.include.clone(), defines: source.defines.clone() }
}

/// Refuses what p4c makes for BMv2: it runs, but is no source text. What is no file, or cannot be read, is refused
/// later: to read a pipe would wait.
fn check_source(path: &Path) -> Result<(), Failure> {
    if !path.is_file() {
        return Ok(());
    }
    let content = fs::read(path).unwrap_or_default();
    match content.trim_ascii_start().starts_with(b"{") {
        true => Err(Failure::new(
            "JSON is no P4 source text; what p4c makes for BMv2 runs on a bridge: `mswitch logic set BRIDGE p4:FILE \
             --param p4info=FILE`",
        )
        .about(path.display())),
        false => Ok(()),
    }
}

fn read(path: &Path, source: &P4Source) -> Result<Front, Failure> {
    check_source(path)?;
    front::file(path, &options(source)).map_err(|error| Failure::new(error).about(path.display()))
}

/// Shows diagnostics to people, on standard error.
fn show(front: &Front) {
    let text = diagnostic::render(&front.sources, &front.diagnostics, stderr().is_terminal());
    eprint!("{text}");
}

fn check(files: &[PathBuf], source: &P4Source, json: bool) -> Result<(), Failure> {
    let mut errors = 0;
    let mut reports = Vec::new();
    for file in files {
        let mut front = read(file, source)?;
        if front.runs() {
            front.lower();
        }
        errors += front.diagnostics.errors();
        if json {
            let list = front.diagnostics.list().iter();
            reports.extend(list.map(|diagnostic| Report::new(&front.sources, diagnostic)));
        } else {
            show(&front);
        }
    }
    if json {
        let text = serde_json::to_string_pretty(&reports).map_err(Failure::new)?;
        print(&format!("{text}\n"))?;
    }
    if errors > 0 { Err(Failure::differs()) } else { Ok(()) }
}

fn info(program: &Path, form: Form, source: &P4Source) -> Result<(), Failure> {
    let mut front = read(program, source)?;
    let info =
        front.program.as_ref().map(|program| p4::info::of(program, &front.sources, &mut front.diagnostics));
    show(&front);
    let Some(info) = info.filter(|_| front.diagnostics.errors() == 0) else { return Err(Failure::differs()) };
    let bytes = p4::info::print(&info, form).map_err(Failure::new)?;
    print_bytes(&bytes)
}

fn test(
    program: &Path,
    cases: &[PathBuf],
    options: &stf::Options,
    in_kernel: bool,
    source: &P4Source,
) -> Result<(), Failure> {
    let mut front = read(program, source)?;
    let lowered = front.lower();
    show(&front);
    let Some(lowered) = lowered else { return Err(Failure::differs()) };
    check_functions(&lowered, options.functions.as_deref(), "--functions").map_err(Failure::new)?;
    let mut failed = 0;
    for path in cases {
        let name = path.display().to_string();
        let case = case(path)?;
        let report = stf::run(&lowered, &case, options);
        for (line, note) in &report.notes {
            print(&format!("{name}:{line}: {note}\n"))?;
        }
        let packets = if report.packets == 1 { "packet" } else { "packets" };
        if report.passes() {
            print(&format!("{name}: passed, {} {packets}\n", report.packets))?;
        } else {
            failed += 1;
            print(&report.text(&name))?;
            print(&format!("{name}: failed\n"))?;
        }
        if in_kernel && !xdp::test(&lowered, &front.places(&lowered), &name, &case)? {
            failed += 1;
        }
    }
    if failed > 0 { Err(Failure::differs()) } else { Ok(()) }
}

/// Reads a test case.
fn case(path: &Path) -> Result<Case, Failure> {
    let name = path.display().to_string();
    let text = fs::read_to_string(path).map_err(|error| Failure::from(error).about(&name))?;
    Case::parse(&text).map_err(|problems| {
        let lines: Vec<_> = problems.iter().map(|p| format!("{name}:{}: {}", p.line, p.message)).collect();
        Failure::new(lines.join("\n"))
    })
}

/// A diagnostic for editors.
#[derive(Debug, Serialize)]
struct Report {
    severity: &'static str,
    message: String,
    expected: String,
    help: Option<String>,
    #[serde(flatten)]
    place: Place,
    related: Vec<Related>,
}

/// Lines and columns count from 1.
#[derive(Debug, Serialize)]
struct Place {
    file: String,
    line: usize,
    column: usize,
    end_line: usize,
    end_column: usize,
}

#[derive(Debug, Serialize)]
struct Related {
    message: String,
    #[serde(flatten)]
    place: Place,
}

impl Report {
    fn new(sources: &Sources, diagnostic: &diagnostic::Diagnostic) -> Self {
        let related = diagnostic.others.iter();
        Self {
            severity: match diagnostic.severity {
                Severity::Error => "error",
                Severity::Warning => "warning",
            },
            message: diagnostic.message.clone(),
            expected: diagnostic.label.text.clone(),
            help: diagnostic.help.clone(),
            place: Place::new(sources, diagnostic.label.span),
            related: related
                .map(|label| Related { message: label.text.clone(), place: Place::new(sources, label.span) })
                .collect(),
        }
    }
}

impl Place {
    fn new(sources: &Sources, span: Span) -> Self {
        let (line, column) = sources.line(span);
        let (end_line, end_column) = sources.line(Span { start: span.end, ..span });
        let file = sources.get(span.file).map_or(String::new(), |file| file.name.clone());
        Self { file, line, column, end_line, end_column }
    }
}
