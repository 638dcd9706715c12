//! Compiles the messages of P4Runtime with protox, which needs no `protoc`.

use std::path::Path;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=proto");
    let mut compiler = protox::Compiler::new(["proto"])?;
    compiler.include_imports(true);
    compiler.open_file("p4/config/v1/p4info.proto")?;
    // The text and JSON forms need the descriptors at run time.
    let out = std::env::var("OUT_DIR")?;
    std::fs::write(Path::new(&out).join("descriptors.bin"), compiler.encode_file_descriptor_set())?;
    tonic_prost_build::configure().btree_map(".").compile_fds(compiler.file_descriptor_set())?;
    Ok(())
}
