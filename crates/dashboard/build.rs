//! Puts the built pages (`assets/site`, which `make web` fills) into the binary: a table of their paths and bytes.

use std::fmt::Write;
use std::path::{Path, PathBuf};

fn main() {
    let root = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it")).join("assets");
    println!("cargo:rerun-if-changed={}", root.display());
    let site = root.join("site");
    let mut files = Vec::new();
    collect(&site, &mut files);
    files.sort();
    let mut table = "pub static FILES: &[(&str, &[u8])] = &[\n".to_owned();
    for file in &files {
        let path = file.strip_prefix(&site).expect("it lies there").to_string_lossy().replace('\\', "/");
        writeln!(table, "    ({path:?}, include_bytes!({:?})),", file.display().to_string()).expect("a string grows");
    }
    table += "];\n";
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets it")).join("files.rs");
    std::fs::write(out, table).expect("the output folder can be written");
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let path = entry.path();
        if path.is_dir() {
            collect(&path, files);
        } else {
            files.push(path);
        }
    }
}
