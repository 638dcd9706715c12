//! `mswitch p4 split`: the program of a switch into programs of line cards, and a configuration that runs them.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use p4::compile::Front;
use p4::diagnostic;
use p4::split::{CPU, Layout, Split, address, lower, split};
use p4::stf::cards::compare_with;
use packet::MacAddr;

use super::{case, read, show};
use crate::cli::P4Source;
use crate::commands::print;
use crate::failure::Failure;

/// Random packets after each case.
const RANDOM: usize = 1000;

/// Arguments of the command.
pub(super) struct Arguments {
    pub(super) program: PathBuf,
    pub(super) cards: Vec<Vec<u32>>,
    pub(super) link: u32,
    pub(super) output: PathBuf,
    pub(super) cases: Vec<PathBuf>,
}

pub(super) fn run(arguments: Arguments, source: &P4Source) -> Result<(), Failure> {
    let Arguments { program, cards, link, output, cases } = arguments;
    let layout = Layout { cards, link };
    layout.check().map_err(Failure::new)?;
    let mut front = read(&program, source)?;
    show(&front);
    if front.diagnostics.errors() > 0 {
        return Err(Failure::differs());
    }
    let split = match split(&front, &layout) {
        Ok(split) => split,
        Err(refused) => {
            eprint!("{}", diagnostic::render(&front.sources, &refused, false));
            return Err(Failure::differs());
        }
    };
    for text in split.cards.iter().chain(&split.cpu) {
        lower("card.p4", text).map_err(Failure::new)?;
    }
    write(&program, &layout, &split, &output)?;
    print(&report(&front, &layout, &split, &output))?;
    cases.iter().try_for_each(|path| check(&mut front, &split, &layout, path))
}

/// Writes the programs and the configuration.
fn write(program: &Path, layout: &Layout, split: &Split, output: &Path) -> Result<(), Failure> {
    fs::create_dir_all(output).map_err(|error| Failure::from(error).about(output.display()))?;
    let folder = output.canonicalize().map_err(|error| Failure::from(error).about(output.display()))?;
    // It stands in comments, which end with the line.
    let name = program.file_name().unwrap_or_default().to_string_lossy().escape_debug().to_string();
    let cards = (1..).zip(&split.cards).map(|(number, text)| {
        let ports = ports(layout.cards.get(number - 1).map_or(&[], Vec::as_slice));
        (format!("card{number}.p4"), format!("// Line card {number} of {name}, for {ports}.\n{text}"))
    });
    let cpu = split.cpu.iter().map(|text| ("cpu.p4".to_owned(), format!("// {name} for the CPU.\n{text}")));
    let configuration = [("switch.toml".to_owned(), configuration(&name, layout, split, &folder))];
    for (name, text) in cards.chain(cpu).chain(configuration) {
        let path = output.join(name);
        fs::write(&path, text).map_err(|error| Failure::from(error).about(path.display()))?;
    }
    Ok(())
}

/// What was written, and why packets go to the CPU.
fn report(front: &Front, layout: &Layout, split: &Split, output: &Path) -> String {
    let output = output.display();
    let mut text = String::new();
    // Writing to a string cannot fail.
    for (number, of) in (1..).zip(&layout.cards) {
        let _ = writeln!(text, "{output}/card{number}.p4: {}", ports(of));
    }
    if split.cpu.is_some() {
        let _ = writeln!(text, "{output}/cpu.p4: all packets, for the cards would have to share");
    }
    for reason in &split.reasons {
        let (file, (line, _)) = (front.sources.get(reason.span.file), front.sources.line(reason.span));
        let _ = writeln!(text, "  {}:{line}: {}", file.map_or("", |file| &file.name), reason.state);
    }
    let _ =
        writeln!(text, "{output}/switch.toml: bridges that run them; add each card's ports, with `p4-port`");
    text
}

/// Ports in words.
fn ports(of: &[u32]) -> String {
    let numbers: Vec<_> = of.iter().map(ToString::to_string).collect();
    format!("port{} {}", if of.len() == 1 { "" } else { "s" }, numbers.join(", "))
}

/// Bridges for cards, CPU and the fabric between them, which knows where ports are.
fn configuration(program: &str, layout: &Layout, split: &Split, folder: &Path) -> String {
    let link = layout.link;
    let cards = (1..=split.cards.len()).map(|number| format!("card{number}"));
    let elements: Vec<String> = cards.chain(split.cpu.iter().map(|_| "cpu".to_owned())).collect();
    let mut text = format!(
        "# The switch of line cards that `mswitch p4 split` made of {program}: `mswitch daemon --config FILE` runs it.\n\
         # A port of a card is a [[bridge.port]] of its bridge, with its number in the program as `p4-port`.\n"
    );
    let all: Vec<u32> = layout.cards.iter().flatten().copied().collect();
    for (at, element) in elements.iter().enumerate() {
        let own = layout.cards.get(at).map_or(&[][..], Vec::as_slice);
        let behind = all.iter().filter(|port| !own.contains(port)).map(ToString::to_string);
        let behind = behind.collect::<Vec<_>>().join(",");
        let program = folder.join(format!("{element}.p4")).display().to_string();
        let logic = toml(&format!("p4:{program}"));
        let _ = write!(
            text,
            "\n[[bridge]]\nname = \"{element}\"\nlogic = {logic}\nparams = {{ link = {link}, behind-link = \"{behind}\" }}\n\n\
             [[bridge.port]]\nname = \"link\"\ntype = \"patch\"\npeer = \"fabric/{element}\"\np4-port = {link}\n"
        );
    }
    text.push_str("\n[[bridge]]\nname = \"fabric\"\n");
    for element in &elements {
        let _ = write!(
            text,
            "\n[[bridge.port]]\nname = \"{element}\"\ntype = \"patch\"\npeer = \"{element}/link\"\n"
        );
    }
    let cards =
        elements.iter().zip(&layout.cards).flat_map(|(card, ports)| ports.iter().map(move |p| (*p, card)));
    for (port, element) in cards.chain(split.cpu.iter().zip(elements.last()).map(|(_, cpu)| (CPU, cpu))) {
        let mac = MacAddr(address(port));
        let _ = write!(text, "\n[[bridge.station]]\nmac = \"{mac}\"\nport = \"{element}\"\n");
    }
    text
}

/// A string in TOML.
fn toml(text: &str) -> String {
    // JSON's escapes are TOML's, too.
    serde_json::Value::from(text).to_string()
}

/// Runs a case, and random packets, on the program and on the cards.
fn check(front: &mut Front, split: &Split, layout: &Layout, path: &Path) -> Result<(), Failure> {
    let (name, case) = (path.display().to_string(), case(path)?);
    let result = compare_with(front, split, layout, &case, (RANDOM, 1)).map_err(Failure::new)?;
    match result.difference {
        None => {
            let (sent, carried) = (result.packets, result.carried);
            print(&format!(
                "{name}: the cards do what the program does, {sent} packets, {carried} carried\n"
            ))?;
            match result.left_out {
                0 => Ok(()),
                number => {
                    print(&format!("  {number} of the case's packets left out: no card has their ports\n"))
                }
            }
        }
        Some(difference) => {
            print(&format!("{name}: {difference}\n"))?;
            Err(Failure::differs())
        }
    }
}
