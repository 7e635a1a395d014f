//! `trials`: lists searches (OptimizationJobs), or the trials of one with their results.

use crate::{exit, jobs, output};
use api::job_kind::JobKind;
use api::object;
use client::{ClientError, Cluster, Kind};
use diagnose::diagnose;
use facts::{Named, Subject, ThisMachine};
use grammar::{ClientCommand, Format, Output, TrialsArgs};
use jiff::Timestamp;
use serde_json::json;
use view::state::{Phase, age, condition};
use view::trials::{PARENT, Trial, list, metric, name, state, summary};

/// Lists searches, or the trials of one.
pub(crate) async fn trials(cluster: &Cluster, args: &TrialsArgs) -> Result<u8, ClientError> {
    match &args.search {
        Some(name) => one(cluster, Named::parse(name)?.name, args.output.output).await,
        None => all(cluster, args.output.output).await,
    }
}

/// A command about a search, carried out; `None` where it is about a job of another kind.
pub(crate) async fn named(command: &ClientCommand, cluster: &Cluster) -> Option<Result<u8, ClientError>> {
    let (verb, job) = match command {
        ClientCommand::Get(args) => ("get", args.job.as_deref()?),
        ClientCommand::Describe(args) => ("describe", args.job.as_str()),
        ClientCommand::Explain(args) => ("explain", args.subject.as_deref()?),
        ClientCommand::Logs(args) => ("logs", args.job.as_str()),
        ClientCommand::Metrics(args) => ("metrics", args.jobs.first()?.as_str()),
        ClientCommand::Wait(args) => ("wait", args.job.as_str()),
        _ => return None,
    };
    if matches!((command, job), (ClientCommand::Get(_), "optimizationjob" | "optimizationjobs")) {
        let ClientCommand::Get(args) = command else { return None };
        return Some(all(cluster, args.output.output).await);
    }
    let named = Named::parse(job).ok().filter(|named| named.kind == Some(JobKind::Search))?;
    Some(match command {
        ClientCommand::Get(args) => one(cluster, named.name, args.output.output).await,
        ClientCommand::Describe(args) => one(cluster, named.name, args.output.output).await,
        ClientCommand::Explain(args) => explained(cluster, named.name, args.output).await,
        ClientCommand::Wait(args) => jobs::wait(cluster, JobKind::Search, named.name, args).await,
        _ => match Subject::find(cluster, job).await {
            Ok(search) => Err(search.without_pods(cluster, verb).await),
            Err(error) => Err(error),
        },
    })
}

/// Says how many trials have ended, and why the first that failed did; where none failed, where the one stands that is in progress.
async fn explained(cluster: &Cluster, of: &str, output: Output) -> Result<u8, ClientError> {
    let search = match cluster.find(Kind::OptimizationJob, of).await? {
        Some(search) => search,
        None => return Err(cluster.not_found(Kind::OptimizationJob, "OptimizationJob", of).await),
    };
    let objects = cluster.list(Kind::TrainJob, &format!("{PARENT}={of}")).await?;
    let mut trials: Vec<Trial<'_>> = objects.iter().filter_map(|object| Trial::of(object, &search)).collect();
    trials.sort_by_key(|trial| trial.index);
    let count = |phase: Phase| trials.iter().filter(|trial| trial.phase == phase).count();
    let all = search["spec"]["numTrials"].as_i64().unwrap_or(1);
    let (complete, failed) = (count(Phase::Complete), count(Phase::Failed));
    let silent = trials.iter().filter(|trial| trial.phase == Phase::Complete && trial.value.is_none()).count();
    let mut told = format!("{complete} of {all} trials are complete, {failed} have failed");
    if silent > 0 {
        told +=
            &format!("; {silent} ended without reporting {}, and count as failed (docs/metrics.md)", metric(&search));
    }
    let said = ["Failed", "Complete", "Created"].iter().find_map(|kind| condition(&search, kind));
    if let Some(said) = said.map(|said| object::text(said, "message")).filter(|said| !said.is_empty()) {
        told += &format!(". {said}");
    }
    let decisive = trials.iter().find(|trial| trial.phase == Phase::Failed);
    let decisive = decisive.or_else(|| trials.iter().find(|trial| !trial.phase.is_finished()));
    let diagnosis = match decisive {
        Some(trial) => {
            Some((name(trial.object), diagnose(&facts::of(cluster, trial.object.clone(), &ThisMachine).await?)))
        }
        None => None,
    };
    match output.output {
        format @ (Format::Json | Format::Yaml) => {
            let trial = diagnosis.as_ref().map(|(name, _)| *name);
            let why = diagnosis.as_ref().map(|(_, diagnosis)| view::explained::json(diagnosis));
            let state = state(&search);
            output::print(&json!({"name": of, "state": state, "why": told, "trial": trial, "diagnosis": why}), format);
        }
        Format::Name => println!("{}", state(&search)),
        Format::Table | Format::Wide => {
            print!("{of}: {}\n{}", state(&search).to_lowercase(), view::explained::wrapped(&told, 2));
            if let Some((name, diagnosis)) = diagnosis {
                print!("\n{}", view::explained::text(name, &diagnosis));
            }
        }
    }
    Ok(exit::OK)
}

async fn all(cluster: &Cluster, format: Format) -> Result<u8, ClientError> {
    let searches = cluster.list(Kind::OptimizationJob, "").await?;
    match format {
        Format::Json | Format::Yaml => {
            output::print(&json!({"apiVersion": "v1", "kind": "List", "items": searches}), format);
        }
        Format::Name => {
            searches.iter().for_each(|search| println!("optimizationjob.trainer.kubeflow.org/{}", name(search)));
        }
        Format::Table | Format::Wide if searches.is_empty() => {
            eprintln!("no OptimizationJobs in namespace {}", cluster.namespace);
        }
        Format::Table | Format::Wide => {
            let now = Timestamp::now();
            let trials = cluster.list(Kind::TrainJob, PARENT).await?;
            let rows = searches.iter().map(|search| {
                let its: Vec<Trial<'_>> = trials.iter().filter_map(|trial| Trial::of(trial, search)).collect();
                let best = its.iter().find(|trial| trial.is_best(search));
                let ended = its.iter().filter(|trial| trial.phase.is_finished()).count();
                vec![
                    name(search).to_owned(),
                    state(search).to_owned(),
                    format!("{ended}/{}", search["spec"]["numTrials"].as_i64().unwrap_or(1)),
                    metric(search).to_owned(),
                    best.and_then(|best| best.value.clone()).unwrap_or("-".to_owned()),
                    best.map_or("-".to_owned(), |best| name(best.object).to_owned()),
                    age(search, now),
                ]
            });
            output::table(&["NAME", "STATE", "TRIALS", "METRIC", "BEST", "TRIAL", "AGE"], rows.collect());
        }
    }
    Ok(exit::OK)
}

async fn one(cluster: &Cluster, of: &str, format: Format) -> Result<u8, ClientError> {
    let found = cluster.find(Kind::OptimizationJob, of).await?;
    let Some(search) = found else {
        return Err(cluster.not_found(Kind::OptimizationJob, "OptimizationJob", of).await);
    };
    let objects = cluster.list(Kind::TrainJob, &format!("{PARENT}={of}")).await?;
    let mut trials: Vec<Trial<'_>> = objects.iter().filter_map(|object| Trial::of(object, &search)).collect();
    trials.sort_by_key(|trial| trial.index);
    match format {
        Format::Json | Format::Yaml => {
            output::print(&summary(&search, &trials), format);
        }
        Format::Name => {
            trials.iter().for_each(|trial| println!("trainjob.trainer.kubeflow.org/{}", name(trial.object)))
        }
        Format::Table | Format::Wide => {
            let parameters: Vec<&str> =
                list(&search["spec"], "parameters").iter().map(|p| object::text(p, "name")).collect();
            let mut header = vec!["TRIAL", "STATE", metric(&search)];
            header.extend(&parameters);
            let rows = trials.iter().map(|trial| {
                let mark = if trial.is_best(&search) { " (best)" } else { "" };
                let mut row = vec![
                    format!("{}{mark}", name(trial.object)),
                    trial.told_state(),
                    trial.value.clone().unwrap_or("-".to_owned()),
                ];
                row.extend(parameters.iter().map(|parameter| trial.told(parameter)));
                row
            });
            output::table(&header, rows.collect());
            // where it stands, and why trials failed
            let said = ["Complete", "Failed", "Created"].iter().find_map(|kind| condition(&search, kind));
            if let Some(said) = said {
                eprintln!("{}: {}", state(&search).to_lowercase(), object::text(said, "message"));
            }
        }
    }
    Ok(exit::OK)
}
