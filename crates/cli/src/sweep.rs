//! `run --sweep`: creates a search and follows it to its best trial.

use crate::exit;
use crate::output;
use crate::prepared::Prepared;
use crate::tell;
use api::object;
use client::{ClientError, Kind};
use grammar::Format;
use std::collections::BTreeSet;
use std::time::Duration;
use submission::{Search, What};
use view::state::{Phase, condition};
use view::trials::{PARENT, Trial, state, summary};

/// Between two looks at the trials.
const POLL: Duration = Duration::from_millis(200);

/// Creates the search and follows it; prints trials as they end, and the best.
pub(crate) async fn run(prepared: &Prepared<'_>, search: &Search) -> Result<u8, ClientError> {
    let (args, cluster) = (prepared.args, &prepared.cluster);
    let created = prepared.ready.create(cluster, What::Search(search), &tell).await?;
    let name = object::meta(&created, "name");
    if args.detach {
        output::created(&created, args.output.output);
        return Ok(exit::OK);
    }
    let flags = &cluster.flags;
    eprintln!("search {name} created: {} trials, {} at a time", search.count(), search.parallel);
    tokio::select! {
        code = follow(prepared, search, name) => code,
        _ = tokio::signal::ctrl_c() => {
            eprintln!("\nsearch {name} continues");
            eprintln!("  look at it: trainyard trials {name}{flags}");
            eprintln!("  end it:     kubectl delete optimizationjob {name} -n {}", cluster.namespace);
            Ok(exit::INTERRUPTED)
        }
    }
}

async fn follow(prepared: &Prepared<'_>, search: &Search, name: &str) -> Result<u8, ClientError> {
    let (format, cluster) = (prepared.args.output.output, &prepared.cluster);
    let mut told = BTreeSet::new();
    loop {
        let Some(job) = cluster.find(Kind::OptimizationJob, name).await? else {
            eprintln!("search {name} was deleted");
            return Ok(exit::FAILURE);
        };
        let objects = cluster.list(Kind::TrainJob, &format!("{PARENT}={name}")).await?;
        let mut trials: Vec<Trial<'_>> = objects.iter().filter_map(|object| Trial::of(object, &job)).collect();
        trials.sort_by_key(|trial| trial.index);
        let state = state(&job);
        let ended = matches!(state, "Complete" | "Failed");
        for trial in &trials {
            // its metric may come a little later than its end
            let known = trial.value.is_some() || trial.phase == Phase::Failed || ended;
            if trial.phase.is_finished() && known && told.insert(trial.index) {
                let value = trial.value.as_deref().unwrap_or("none");
                let how = if trial.phase == Phase::Failed { " (failed)" } else { "" };
                let title = search.line(trial);
                eprintln!("trial {}/{}: {title}  {} {value}{how}", told.len(), search.count(), search.metric);
            }
        }
        if !ended {
            tokio::time::sleep(POLL).await;
            continue;
        }
        if matches!(format, Format::Json | Format::Yaml) {
            output::print(&summary(&job, &trials), format);
        } else if let Some(best) = trials.iter().find(|trial| trial.is_best(&job)) {
            let value = best.value.as_deref().unwrap_or_default();
            println!("best: {}  {} {value}  ({})", search.line(best), search.metric, object::meta(best.object, "name"));
        }
        if state == "Complete" {
            return Ok(exit::OK);
        }
        let why = condition(&job, "Failed").map(|failed| object::text(failed, "message")).unwrap_or_default();
        eprintln!("search {name} failed: {why}");
        eprintln!("  see the trials: trainyard trials {name}{}", cluster.flags);
        return Ok(exit::FAILURE);
    }
}
