//! Decodes messages from standard input, one in hexadecimal per line, and prints them.
//!
//! `cargo run -p openflow --example decode < messages`. Each line of output is `exact` (the message encodes to the same
//! bytes), `changed` (to other bytes, which follow) or `refused` (with the error code), and the message.

use std::fmt::Write as _;
use std::io::BufRead as _;

use openflow::Message;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let digits: String = line.chars().filter(char::is_ascii_hexdigit).collect();
        let message: Vec<u8> = digits
            .as_bytes()
            .chunks_exact(2)
            .map(|pair| u8::from_str_radix(&String::from_utf8_lossy(pair), 16))
            .collect::<Result<_, _>>()?;
        match Message::decode(&message) {
            Err(error) => println!("refused {error}"),
            Ok(decoded) => match decoded.encode() {
                Ok(encoded) if encoded == message => {
                    println!("exact {decoded:?} check {:?}", decoded.check())
                }
                Ok(encoded) => println!("changed {decoded:?} to {}", hex(&encoded)?),
                Err(error) => println!("changed {decoded:?}: {error}"),
            },
        }
    }
    Ok(())
}

fn hex(bytes: &[u8]) -> Result<String, std::fmt::Error> {
    let mut text = String::new();
    for byte in bytes {
        write!(text, "{byte:02x}")?;
    }
    Ok(text)
}
