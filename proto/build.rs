//! Generates messages, clients and servers from the .proto files, without protoc.

use std::error::Error;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

use protox::prost::Message as _;
use tonic_prost_build::FileDescriptorSet;

const FILES: [&str; 8] = [
    "types",
    "provider",
    "catalog",
    "binding",
    "export",
    "credential",
    "contract",
    "errors",
];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=kubebind");
    println!("cargo::rerun-if-changed=google");
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("OUT_DIR is not set: build with cargo")?);

    let mut compiler = protox::Compiler::new(["."])?;
    compiler.include_imports(true).include_source_info(true);
    compiler.open_files(FILES.map(|name| format!("kubebind/v1alpha2/{name}.proto")))?;
    // Encoded by protox itself: its decoded set loses custom options, field_behavior among them.
    fs::write(out.join("descriptors.bin"), compiler.encode_file_descriptor_set())?;

    let descriptors = FileDescriptorSet::decode(compiler.file_descriptor_set().encode_to_vec().as_slice())?;
    write_idempotency(&descriptors, &out.join("idempotency.in"))?;
    tonic_prost_build::configure()
        .bytes(".kubebind.v1alpha2")
        .skip_debug([".kubebind.v1alpha2.Kubeconfig"])
        .codec_path("crate::Codec")
        .emit_rerun_if_changed(false)
        .compile_fds(descriptors)?;
    Ok(())
}

/// One line per method: its path and its `idempotency_level`, as a Rust array sorted by path.
fn write_idempotency(descriptors: &FileDescriptorSet, to: &Path) -> Result<(), Box<dyn Error>> {
    let mut rows = Vec::new();
    for file in &descriptors.file {
        for service in &file.service {
            for method in &service.method {
                let path = format!("/{}.{}/{}", file.package(), service.name(), method.name());
                let level = method
                    .options
                    .as_ref()
                    .map(|options| options.idempotency_level().as_str_name());
                let level = match level {
                    Some("NO_SIDE_EFFECTS") => "NoSideEffects",
                    Some("IDEMPOTENT") => "Idempotent",
                    _ => "Unknown",
                };
                rows.push((path, level));
            }
        }
    }
    rows.sort();
    let mut text = String::from("[\n");
    for (path, level) in rows {
        writeln!(text, "    ({path:?}, Idempotency::{level}),")?;
    }
    text.push(']');
    fs::write(to, text)?;
    Ok(())
}
