//! The client in C, with a switch that answers too late.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Stdio};

#[test]
fn a_late_answer_is_not_taken_for_the_next() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (program, socket) = (folder.join("late_answer"), folder.join("late_answer.sock"));
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let sdk = here.with_file_name("c");
    let mut compiler = Command::new("cc");
    compiler.args(["-Wall", "-Wextra", "-Werror", "-I"]).arg(&sdk).arg("-o").arg(&program);
    compiler.args([here.join("tests/late_answer.c"), sdk.join("mswitch_reservation.c")]);
    assert!(compiler.status().unwrap().success());
    let _ = std::fs::remove_file(&socket);
    let listener = UnixListener::bind(&socket).unwrap();
    let mut client =
        Command::new(&program).arg(&socket).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let (mut switch, _) = listener.accept().unwrap();
    let mut told = BufReader::new(client.stdout.take().unwrap());
    let mut line = String::new();
    told.read_line(&mut line).unwrap();
    assert_eq!(line, "-2\n");
    // The switch sees the end of the connection, so it releases what was reserved, and its answer goes nowhere.
    let mut request = String::new();
    BufReader::new(&switch).read_line(&mut request).unwrap();
    assert_eq!(request, "mac\n");
    assert_eq!(switch.write_all(b"ok\n").unwrap_err().kind(), std::io::ErrorKind::BrokenPipe);
    assert_eq!(switch.read(&mut [0]).unwrap(), 0);
    client.stdin.take().unwrap().write_all(b"\n").unwrap();
    line.clear();
    told.read_line(&mut line).unwrap();
    assert_eq!(line, "-2 the connection to the switch is closed\n");
    assert!(client.wait().unwrap().success());
}
