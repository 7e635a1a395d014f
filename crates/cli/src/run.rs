//! `trainyard run`: creates a TrainJob for a script, follows it, and returns its exit code.

use crate::exit;
use crate::prepared::{Prepared, spec};
use crate::sweep;
use crate::watch;
use client::ClientError;
use grammar::{Global, RunArgs};
use submission::{Search, metrics};

/// Runs what the flags say.
pub(crate) async fn run(args: &RunArgs, global: &Global) -> Result<u8, ClientError> {
    metrics(&args.metrics)?;
    if args.watch {
        return watch::watch(args, global).await;
    }
    let spec = spec(args);
    let search = Search::of(&spec)?;
    let spec = search.as_ref().map_or_else(|| spec.clone(), |search| search.arguments(&spec));
    let prepared = Prepared::of(args, spec, global).await?;
    let done = async {
        match &search {
            Some(search) => sweep::run(&prepared, search).await,
            None => {
                let job = prepared.start().await?;
                if args.detach { Ok(exit::OK) } else { prepared.attend_or_stop(&job).await }
            }
        }
    };
    done.await.map_err(|error| error.at(&prepared.cluster))
}
