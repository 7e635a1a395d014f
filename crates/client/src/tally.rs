//! How many managed jobs there are, and which are the latest, without a list of all.

use crate::ClientError;
use kube::Client;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// `GET managedjobs/all/tally?query={…}` answers with a [`JobTally`]. `trainyard up` serves it; a cluster does not.
pub const GROUP: &str = "queue.trainyard.dev";
pub const VERSION: &str = "v1alpha1";
pub const PLURAL: &str = "managedjobs";
/// The name of all jobs.
pub const NAME: &str = "all";
pub const TALLY: &str = "tally";
/// The parameter with the [`TallyQuery`], as JSON.
pub const QUERY: &str = "query";

/// Most jobs that an answer names.
pub const LATEST_MAX: usize = 1000;

/// Which managed jobs are counted. Replicas and workers are not.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TallyQuery {
    /// Those that this user submitted, and those that no user did. Default: all.
    pub user: Option<String>,
    /// Only those that go on.
    pub unfinished: bool,
    /// Only those with a task in one of these states, and of their tasks only these. Default: all.
    pub states: Vec<String>,
    /// Seconds since 1970: those that were submitted then or later.
    pub after: Option<i64>,
    /// Seconds since 1970: those that were submitted then or before.
    pub before: Option<i64>,
    /// How many are named; at most [`LATEST_MAX`].
    pub limit: usize,
}

/// What was counted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct JobTally {
    /// How many jobs are counted.
    pub jobs: usize,
    /// Their tasks that go on, by state.
    pub tasks: BTreeMap<String, usize>,
    /// The names of the latest, by number, the latest first.
    pub latest: Vec<String>,
}

/// Asks the server for a count. `None` if the server cannot count jobs.
///
/// # Errors
/// The server's answer.
pub async fn tally(client: &Client, namespace: &str, query: &TallyQuery) -> Result<Option<JobTally>, ClientError> {
    let query = serde_json::to_string(query).map_err(kube::Error::SerdeError)?;
    let query: String = form_urlencoded::byte_serialize(query.as_bytes()).collect();
    let path = format!("/apis/{GROUP}/{VERSION}/namespaces/{namespace}/{PLURAL}/{NAME}/{TALLY}?{QUERY}={query}");
    let request = http::Request::get(path).body(Vec::new()).map_err(kube::Error::HttpError)?;
    match client.request_text(request).await {
        Ok(text) => Ok(Some(serde_json::from_str(&text).map_err(kube::Error::SerdeError)?)),
        // a cluster has no such group, and its administrator may have given a right to jobs alone
        Err(kube::Error::Api(status)) if [403, 404].contains(&status.code) => Ok(None),
        Err(error) => Err(error.into()),
    }
}
