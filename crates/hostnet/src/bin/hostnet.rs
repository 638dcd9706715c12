//! Moves an interface's configuration by hand, and plays the daemon in tests.
//!
//! `hostnet show INTERFACE` prints a snapshot. `hostnet move SOURCE TARGET JOURNAL` begins a handover and obeys words
//! on its standard input: `plan`, `commit`, `follow`, `guard`, `release`, `finish`. `hostnet recover JOURNAL`
//! restores after a crash.

use std::ffi::OsString;
use std::io::BufRead;
use std::path::Path;
use std::process::ExitCode;

use hostnet::{Handover, Released, Snapshot, guardian, recover};

const USAGE: &str = "usage: hostnet show INTERFACE | move SOURCE TARGET JOURNAL | recover JOURNAL";

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1).peekable();
    if guardian::is_asked_for(args.peek().map(OsString::as_os_str)) {
        return guardian::main(args.skip(1));
    }
    let args: Vec<String> = args.map(|argument| argument.to_string_lossy().into_owned()).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let done = match args[..] {
        ["show", interface] => show(interface),
        ["recover", journal] => recover(Path::new(journal)).map(|recovered| println!("{recovered:?}")),
        ["move", source, target, journal] => hand_over(source, target, Path::new(journal)),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn show(interface: &str) -> Result<(), hostnet::Error> {
    let snapshot = Snapshot::of(interface)?;
    println!("{}: {:?}", snapshot.interface, snapshot.link);
    snapshot.objects.iter().for_each(|object| println!("{object}"));
    Ok(())
}

/// Where a handover is.
enum Stage {
    Away(Box<Handover>),
    Back(Box<Released>),
}

fn hand_over(source: &str, target: &str, journal: &Path) -> Result<(), hostnet::Error> {
    let handover = Handover::begin(source, target, journal, guardian::command())?;
    println!("guardian {}", handover.guardian());
    let mut stage = Stage::Away(Box::new(handover));
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        stage = match (stage, line.as_str()) {
            (Stage::Away(handover), "plan") => {
                print!("{}", handover.plan());
                Stage::Away(handover)
            }
            (Stage::Away(handover), "commit") => Stage::Away(Box::new(handover.commit()?)),
            (Stage::Away(mut handover), "follow") => {
                println!("{} objects", handover.follow()?);
                Stage::Away(handover)
            }
            (Stage::Away(mut handover), "guard") => {
                handover.guard_again(guardian::command())?;
                println!("guardian {}", handover.guardian());
                Stage::Away(handover)
            }
            (Stage::Away(handover), "release") => Stage::Back(Box::new(handover.release()?)),
            (Stage::Back(released), "finish") => return released.finish(),
            (stage, word) => {
                println!("`{word}` is not possible now");
                stage
            }
        };
        println!("done {line}");
    }
    Ok(())
}
