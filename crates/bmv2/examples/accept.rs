//! Counts the documents that are accepted: `accept FILE.json…`. The P4Info is beside each, as `FILE.p4info.txtpb`.

use std::path::Path;
use std::time::Instant;

use p4::info;

fn main() {
    let (mut accepted, mut all) = (0, 0);
    for file in std::env::args().skip(1) {
        all += 1;
        let started = Instant::now();
        match accept(Path::new(&file)) {
            Ok(()) => accepted += 1,
            Err(reason) => println!("{file}: {reason}"),
        }
        if started.elapsed().as_millis() > 200 {
            println!("{file}: {} ms", started.elapsed().as_millis());
        }
    }
    println!("{accepted} of {all} accepted");
}

fn accept(file: &Path) -> Result<(), String> {
    let json = std::fs::read(file).map_err(|error| error.to_string())?;
    let info = match std::fs::read_to_string(file.with_extension("p4info.txtpb")) {
        Ok(text) => Some(info::read(&text).map_err(|error| format!("P4Info: {error}"))?),
        Err(_) => None,
    };
    bmv2::lower(&json, info.as_ref()).map_err(|refusal| refusal.to_string())?;
    Ok(())
}
