//! Compiles the control interface with protox, which needs no `protoc`.

/// Attribute of fields with bytes that are shown as hexadecimal digits.
const HEX: &str = "#[serde(serialize_with = \"crate::hex::serialize\")]";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=proto/mswitch.proto");
    let files = protox::compile(["mswitch.proto"], ["proto"])?;
    tonic_prost_build::configure()
        .btree_map(".")
        // The command line prints these messages as JSON.
        .message_attribute(".", "#[derive(serde::Serialize)]")
        .field_attribute("Trace.packet", HEX)
        .field_attribute("TraceOutput.packet", HEX)
        .compile_fds(files)?;
    Ok(())
}
