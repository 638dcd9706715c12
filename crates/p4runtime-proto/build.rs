//! Compiles P4Runtime's messages and service with protox, which needs no `protoc`.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=proto");
    println!("cargo::rerun-if-changed=../p4/proto");
    let files = protox::compile(["p4/v1/p4runtime.proto"], ["proto", "../p4/proto"])?;
    tonic_prost_build::configure().extern_path(".p4.config.v1", "::p4::info::proto").compile_fds(files)?;
    Ok(())
}
