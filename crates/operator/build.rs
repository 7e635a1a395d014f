//! Turns the manifests that the operator carries into compact JSON: reading them at a first start is then a matter of
//! milliseconds. The YAML under `manifests/` stays the source.

use std::path::{Path, PathBuf};
use std::{env, fs};

fn main() {
    let root = Path::new(&env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it")).join("../../manifests");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    for (from, folder) in [
        ("crds", "crds"),
        ("crds/mpi", "crds"),
        ("runtimes", "runtimes"),
        ("laptop", "laptop"),
        ("base/rbac/users", "users"),
    ] {
        println!("cargo:rerun-if-changed={}", root.join(from).display());
        fs::create_dir_all(out.join(folder)).expect("the build folder can be written");
        let files = fs::read_dir(root.join(from)).expect("the manifests are there");
        for file in files.map(|file| file.expect("the folder can be read").path()) {
            if file.extension().is_none_or(|extension| extension != "yaml") {
                continue;
            }
            println!("cargo:rerun-if-changed={}", file.display());
            let text = fs::read_to_string(&file).expect("manifests can be read");
            let object: serde_json::Value =
                serde_saphyr::from_str(&text).unwrap_or_else(|error| panic!("{} is no YAML: {error}", file.display()));
            let name = file.file_stem().expect("files have names").to_string_lossy().into_owned() + ".json";
            fs::write(out.join(folder).join(name), object.to_string()).expect("the build folder can be written");
        }
    }
}
