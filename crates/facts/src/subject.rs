//! Which job a command means: `NAME`, `KIND/NAME` or `KIND.GROUP/NAME`, as kubectl writes them and as our own answers print them.

use api::job_kind::JobKind;
use api::object;
use client::codes::ErrorCode;
use client::{ClientError, Cluster, Kind, pods_of};
use serde_json::Value;
use view::job;
use view::state::Phase;
use view::trials;

/// A job as it was named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named<'a> {
    /// `None`: a bare name.
    pub kind: Option<JobKind>,
    pub name: &'a str,
}

impl<'a> Named<'a> {
    /// Errors: `Usage` for a kind that is none of jobs.
    pub fn parse(text: &'a str) -> Result<Self, ClientError> {
        let Some((kind, name)) = text.split_once('/') else { return Ok(Self { kind: None, name: text }) };
        match JobKind::of(kind) {
            Some(kind) => Ok(Self { kind: Some(kind), name }),
            None => Err(ClientError::Usage(
                ErrorCode::FlagRefused,
                format!(
                    "{text:?} names no job: {kind:?} is no kind of jobs; jobs are named NAME, trainjob/NAME, mpijob/NAME or \
                     optimizationjob/NAME"
                ),
            )),
        }
    }
}

/// The label selector of a job's pods; of a search, whose trials have them, `None`.
pub fn pods_of_job(kind: JobKind, name: &str) -> Option<String> {
    match kind {
        JobKind::Train => Some(pods_of(name)),
        JobKind::Mpi => Some(format!("{}={name}", api::mpi::names::LABEL_JOB_NAME)),
        JobKind::Search => None,
    }
}

/// A job that exists.
#[derive(Clone, Debug)]
pub struct Subject {
    pub kind: JobKind,
    pub name: String,
    pub object: Value,
}

impl Subject {
    /// The job that is meant by a name. A bare name is a TrainJob's, else an MPIJob's, else a search's.
    ///
    /// Errors: a kind that does not exist; no such job, with the name that was probably meant.
    pub async fn find(cluster: &Cluster, text: &str) -> Result<Self, ClientError> {
        let Named { kind, name } = Named::parse(text)?;
        let kinds = kind.map_or(JobKind::ALL.to_vec(), |kind| vec![kind]);
        for of in kinds {
            let found = match cluster.find(of.into(), name).await {
                // a cluster need not have all kinds, nor the user a right to them
                Err(ClientError::NotServed | ClientError::Forbidden { .. })
                    if kind.is_none() && of != JobKind::Train =>
                {
                    None
                }
                Err(ClientError::NotServed) if of == JobKind::Mpi => return Err(ClientError::NoMpiJobs),
                found => found?,
            };
            if let Some(object) = found {
                return Ok(Self { kind: of, name: name.to_owned(), object });
            }
        }
        let of = kind.unwrap_or(JobKind::Train);
        Err(cluster.not_found(of.into(), of.title(), name).await)
    }

    pub fn full_name(&self) -> String {
        self.kind.full_name(&self.name)
    }

    pub fn short_name(&self) -> String {
        self.kind.short_name(&self.name)
    }

    /// `TrainJob "x"`, as messages have it.
    pub fn title(&self) -> String {
        format!("{} {:?}", self.kind.title(), self.name)
    }

    pub fn is_finished(&self) -> bool {
        job::is_finished(self.kind, &self.object)
    }

    /// In lower case.
    pub fn state(&self) -> String {
        job::state(self.kind, &self.object)
    }

    /// The label selector of its pods; of a search, whose trials have them, `None`.
    pub fn pods(&self) -> Option<String> {
        pods_of_job(self.kind, &self.name)
    }

    /// The error of a command that needs pods, for a search: it names the trials, which have some.
    pub async fn without_pods(&self, cluster: &Cluster, verb: &str) -> ClientError {
        let trials =
            cluster.list(Kind::TrainJob, &format!("{}={}", trials::PARENT, self.name)).await.unwrap_or_default();
        let running = trials.iter().find(|trial| Phase::of(trial) == Phase::Running).or(trials.last());
        let next = match running {
            Some(trial) => format!("; name one: trainyard {verb} {}{}", object::meta(trial, "name"), cluster.flags),
            None => "; it has made none yet".to_owned(),
        };
        let name = &self.name;
        ClientError::Usage(
            ErrorCode::FlagRefused,
            format!(
                "search {name:?} has no processes of its own; only its trials do{next}\n  all trials: trainyard trials {name}{}",
                cluster.flags
            ),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_that_is_printed_can_be_typed() {
        for kind in JobKind::ALL {
            for text in [kind.full_name("x"), format!("{}s/x", kind.singular()), format!("{}/x", kind.title())] {
                let named = Named::parse(&text).unwrap();
                assert_eq!(named, Named { kind: Some(kind), name: "x" }, "{text}");
            }
            let short = kind.short_name("x");
            assert!(matches!(Named::parse(&short).unwrap().kind, None | Some(_) if short.ends_with('x')));
        }
        assert_eq!(Named::parse("mpijobs.kubeflow.org/a").unwrap().kind, Some(JobKind::Mpi));
        assert_eq!(Named::parse("a").unwrap(), Named { kind: None, name: "a" });
        for text in ["pod/a", "mpijob.trainer.kubeflow.org/a", "/a", "trainjobss/a"] {
            assert!(Named::parse(text).unwrap_err().to_string().contains("no kind of jobs"), "{text}");
        }
    }
}
