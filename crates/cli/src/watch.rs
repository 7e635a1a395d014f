//! `run --watch`: the job runs again whenever its code changes.

use crate::exit;
use crate::jobs::until;
use crate::prepared::{Prepared, spec};
use api::object;
use client::{ClientError, Cluster, Kind};
use facts::follow::Stop;
use grammar::{Global, RunArgs};
use kube::api::DeleteParams;
use std::path::PathBuf;
use submission::Sources;

/// Runs until Ctrl-C. The job that runs then is deleted, one that has ended stays.
pub(crate) async fn watch(args: &RunArgs, global: &Global) -> Result<u8, ClientError> {
    let spec = spec(args);
    let mut before: Option<(Cluster, String)> = None;
    loop {
        // before the run: what changes from now on is news
        let files = Sources::of(&spec)?;
        if let Some((cluster, name)) = before.take() {
            remove(&cluster, &name).await?;
        }
        let prepared = match Prepared::of(args, spec.clone(), global).await {
            Ok(prepared) => prepared,
            Err(error @ ClientError::Usage(..)) => {
                eprintln!("{}", error.render());
                match changed_or_stopped(&files).await {
                    Some(file) => eprintln!("\n{} has changed: running again", file.display()),
                    None => return Ok(exit::INTERRUPTED),
                }
                continue;
            }
            Err(error) => return Err(error),
        };
        let job = prepared.start().await.map_err(|error| error.at(&prepared.cluster))?;
        let name = object::meta(&job, "name").to_owned();
        let never = Stop::default();
        let changed = tokio::select! {
            file = files.changed() => Some(file),
            _ = tokio::signal::ctrl_c() => {
                eprintln!("\nstopping job {name} …");
                remove(&prepared.cluster, &name).await?;
                return Ok(exit::INTERRUPTED);
            }
            ended = prepared.attend(&job, &never) => {
                ended.map_err(|error| error.at(&prepared.cluster))?;
                eprintln!("waiting for a change of {} (Ctrl-C ends)", files.title());
                changed_or_stopped(&files).await
            }
        };
        let Some(file) = changed else { return Ok(exit::INTERRUPTED) };
        eprintln!("\n{} has changed: running again", file.display());
        before = Some((prepared.cluster, name));
    }
}

/// Deletes a job and waits until it and its pods are gone, so that its name and what it held are free.
async fn remove(cluster: &Cluster, name: &str) -> Result<(), ClientError> {
    match cluster.api(Kind::TrainJob).delete(name, &DeleteParams::foreground()).await {
        Ok(_) => until(cluster, Kind::TrainJob, name, |job| job.is_none()).await.map(|_| ()),
        // somebody else was faster
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        Err(error) => Err(ClientError::from(error).at(cluster)),
    }
}

/// The file that changed; `None` after Ctrl-C.
async fn changed_or_stopped(files: &Sources) -> Option<PathBuf> {
    tokio::select! {
        file = files.changed() => Some(file),
        _ = tokio::signal::ctrl_c() => None,
    }
}
