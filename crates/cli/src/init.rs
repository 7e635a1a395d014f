//! `trainyard init`: writes a commented job.yaml for a script, to start from.

use crate::exit;
use client::ClientError;
use client::codes::ErrorCode;
use grammar::InitArgs;
use std::path::Path;
use submission::Spec;
use submission::template::{Template, template};

/// Writes the files.
///
/// Errors: there is no such script; a file exists already.
pub(crate) async fn init(args: &InitArgs) -> Result<u8, ClientError> {
    let InitArgs { script, name, runtime, nodes, nproc_per_node, workdir, force } = args;
    let spec = Spec {
        script: script.clone().unwrap_or_else(|| ".".into()),
        name: name.clone(),
        runtime: runtime.clone(),
        nodes: *nodes,
        nproc_per_node: *nproc_per_node,
        workdir: workdir.clone(),
        ..Spec::default()
    };
    let Template { name, files } = template(&spec).await?;
    for (name, _) in &files {
        if !force && Path::new(name).exists() {
            return Err(ClientError::Usage(
                ErrorCode::OutputExists,
                format!("{name} exists; to overwrite it: trainyard init --force"),
            ));
        }
    }
    for (name, text) in &files {
        std::fs::write(name, text).map_err(|source| ClientError::Io { doing: "write", path: name.into(), source })?;
        println!("{name}");
    }
    eprintln!("run it: kubectl --kubeconfig \"$(trainyard kubeconfig)\" apply -f job.yaml && trainyard logs -f {name}");
    Ok(exit::OK)
}
