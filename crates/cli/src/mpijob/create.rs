//! `mpijob create`.

use super::{full_name, wrong};
use crate::{exit, output};
use api::mpi::{API_VERSION, PLURAL};
use api::object;
use client::{ClientError, Cluster};
use grammar::mpi::{CreateArgs, DryRun, Implementation};
use grammar::{Format, Global};
use serde_json::Value;
use std::io::Read;
use std::path::Path;
use submission::mpi::{self, for_a_shell, manifest};

/// What a dry run of the client prints, which asks nobody; `None` where a server is needed.
pub(crate) fn without_server(args: &CreateArgs, global: &Global) -> Result<Option<u8>, ClientError> {
    if let Some(word) = args.command.as_deref().and_then(for_a_shell) {
        eprintln!(
            "note: no shell reads --command, so {word} goes to the program; with a shell: --command \"sh -c '…'\""
        );
    }
    if args.dry_run != Some(DryRun::Client) {
        // a fault that needs no server to be seen is reported before any is asked
        if args.file.is_none() {
            manifest(&spec(args), None, None)?;
        }
        return Ok(None);
    }
    let job = match &args.file {
        Some(path) => read(path)?,
        None => manifest(&spec(args), global.namespace.as_deref(), None)?,
    };
    print(&job, args);
    Ok(Some(exit::OK))
}

/// Creates the job, or lets the server check it.
pub(crate) async fn create(cluster: &Cluster, args: &CreateArgs, global: &Global) -> Result<u8, ClientError> {
    let mut cluster = cluster.clone();
    let job = match &args.file {
        Some(path) => {
            let job = read(path)?;
            let namespace = object::meta(&job, "namespace");
            match global.namespace.as_deref() {
                Some(given) if !namespace.is_empty() && given != namespace => {
                    return Err(wrong(format!("the file is for namespace {namespace}, and -n says {given}")));
                }
                None if !namespace.is_empty() => namespace.clone_into(&mut cluster.namespace),
                _ => {}
            }
            job
        }
        None => {
            let here = cluster.local.then(mpi::here).transpose()?;
            manifest(&spec(args), Some(&cluster.namespace), here.as_ref())?
        }
    };
    if cluster.local {
        let implementation = job["spec"]["mpiImplementation"].as_str().unwrap_or("OpenMPI");
        let container = &job["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]["containers"][0];
        let own = container["env"].as_array().into_iter().flatten().rev().find(|variable| variable["name"] == "PATH");
        let path = own.and_then(|variable| variable["value"].as_str()).map(str::to_owned);
        let path = path.or_else(|| std::env::var("PATH").ok()).unwrap_or_default();
        mpi::check(implementation, &view::mpijob::command(&job), &path, args.file.is_some())?;
    }
    let created = post(&cluster, &job, args.dry_run.is_some()).await?;
    print(&created, args);
    Ok(exit::OK)
}

/// Sends the job. As kubectl does it: a typo in a field is an error and not a default.
async fn post(cluster: &Cluster, job: &Value, dry_run: bool) -> Result<Value, ClientError> {
    let dry_run = if dry_run { "&dryRun=All" } else { "" };
    let request = http::Request::post(format!(
        "/apis/{API_VERSION}/namespaces/{}/{PLURAL}?fieldManager=trainyard&fieldValidation=Strict{dry_run}",
        cluster.namespace
    ));
    let body = serde_json::to_vec(job).expect("values are JSON");
    let request = request.header(http::header::CONTENT_TYPE, "application/json").body(body);
    let request = request.map_err(|_| wrong(format!("-n {:?} is no namespace", cluster.namespace)))?;
    Ok(cluster.client.request(request).await?)
}

/// What the flags ask for.
fn spec(args: &CreateArgs) -> mpi::Spec {
    mpi::Spec {
        name: args.name.clone().unwrap_or_default(),
        workers: args.workers.unwrap_or_default(),
        image: args.image.clone().unwrap_or_default(),
        command: args.command.clone().unwrap_or_default(),
        gpu: args.gpu,
        cpu: args.cpu.clone(),
        memory: args.memory.clone(),
        slots_per_worker: args.slots_per_worker,
        implementation: match args.implementation {
            Implementation::OpenMpi => mpi::Implementation::OpenMpi,
            Implementation::Intel => mpi::Implementation::Intel,
            Implementation::Mpich => mpi::Implementation::Mpich,
        },
        env: args.env.clone(),
        queue: args.queue.clone(),
        retries: args.retries,
        workdir: args.workdir.clone(),
        run_as_root: args.run_as_root,
    }
}

fn print(job: &Value, args: &CreateArgs) {
    match args.output.output {
        format @ (Format::Json | Format::Yaml) => output::print(job, format),
        Format::Name => println!("{}", full_name(object::meta(job, "name"))),
        Format::Table | Format::Wide => {
            let dry = match args.dry_run {
                None => "",
                Some(DryRun::Client) => " (dry run)",
                Some(DryRun::Server) => " (server dry run)",
            };
            println!("{} created{dry}", full_name(object::meta(job, "name")));
        }
    }
}

/// The one MPIJob of the file.
fn read(path: &Path) -> Result<Value, ClientError> {
    let failed = |source| ClientError::Io { doing: "read", path: path.to_owned(), source };
    let mut text = String::new();
    if path.as_os_str() == "-" {
        std::io::stdin().read_to_string(&mut text).map_err(failed)?;
    } else {
        text = std::fs::read_to_string(path).map_err(failed)?;
    }
    mpi::read(&text).map_err(|fault| wrong(format!("{}: {fault}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use grammar::mpi::MpiJobCommand;
    use grammar::{Cli, Command, LocalCommand};

    /// The MPIJob that these words after `mpijob create` make, or what is said of them.
    fn made(words: &[&str]) -> Result<Value, String> {
        let cli = Cli::try_parse_from([&["trainyard", "mpijob", "create"], words].concat());
        let cli = cli.map_err(|error| error.to_string())?;
        let Command::Local(LocalCommand::Mpijob(args)) = cli.command else { panic!("{:?}", cli.command) };
        let MpiJobCommand::Create(args) = args.command else { panic!("{:?}", args.command) };
        manifest(&spec(&args), cli.global.namespace.as_deref(), None).map_err(|error| error.to_string())
    }

    #[test]
    fn jobs_are_those_of_the_sdk() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../sdk/golden");
        let mut cases = 0;
        for entry in std::fs::read_dir(folder).expect("sdk/golden is there") {
            let path = entry.expect("it can be listed").path();
            let text = std::fs::read_to_string(&path).expect("it can be read");
            let case: Value = serde_saphyr::from_str(&text).expect("it is YAML");
            let words: Vec<&str> = case["cli"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
            match (made(&words), case["says"].as_str()) {
                (Ok(made), None) => assert_eq!(made, case["manifest"], "{}", path.display()),
                (Err(said), Some(says)) => assert!(said.contains(says), "{}: {said}", path.display()),
                (made, says) => panic!("{}: {made:?}, {says:?}", path.display()),
            }
            cases += 1;
        }
        assert!(cases >= 15, "{cases}");
    }
}
