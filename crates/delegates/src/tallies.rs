//! Counts managed jobs (`queue.trainyard.dev`). There may be a hundred thousand of them.

use api::object;
use api::sky::{ManagedState, managed_job_gvk};
use apiserver::delegate::{Delegate, Text, Wanted};
use apiserver::query::Query;
use client::tally::{GROUP, JobTally, LATEST_MAX, NAME, PLURAL, QUERY, TALLY, TallyQuery, VERSION};
use driver::Source;
use futures::future::BoxFuture;
use futures::{StreamExt, stream};
use jiff::Timestamp;
use objects::packed::Packed;
use objects::take::Take;
use resource::status::Status;
use serde_json::Value;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

/// Answers from the server's own objects. Each state of a job is read when a count first meets it, and never again.
#[derive(Clone, Default)]
pub struct Tallies(Arc<Inner>);

#[derive(Default)]
struct Inner {
    source: OnceLock<Arc<dyn Source>>,
    /// By the address of the state.
    known: Mutex<HashMap<usize, Known>>,
}

/// What is kept of one state of a job.
struct Known {
    /// While this is here, no other state has the same address.
    state: Weak<Packed>,
    /// None: it is not counted.
    facts: Option<Facts>,
}

/// What a count needs to know of a job.
struct Facts {
    namespace: String,
    user: String,
    id: u32,
    /// Seconds since 1970.
    submitted: i64,
    tasks: Box<[ManagedState]>,
}

fn parts(member: &str) -> Take {
    match member {
        "metadata" => Take::Some(|member| chosen(&["namespace", "creationTimestamp"], member)),
        "spec" => Take::Some(|member| chosen(&["user", "id", "replica"], member)),
        "status" => Take::Some(|member| match member {
            "tasks" => Take::Some(|member| chosen(&["state"], member)),
            member => chosen(&["state"], member),
        }),
        _ => Take::Nothing,
    }
}

fn chosen(names: &[&str], member: &str) -> Take {
    if names.contains(&member) { Take::All } else { Take::Nothing }
}

impl Facts {
    fn of(job: &Value) -> Option<Self> {
        let spec = &job["spec"];
        if !spec["replica"].is_null() {
            return None;
        }
        let state = |of: &Value| of["state"].as_str().and_then(ManagedState::parse).unwrap_or_default();
        let tasks: Vec<ManagedState> = job["status"]["tasks"].as_array().into_iter().flatten().map(state).collect();
        let submitted = object::meta(job, "creationTimestamp").parse().map_or(0, Timestamp::as_second);
        Some(Self {
            namespace: object::meta(job, "namespace").to_owned(),
            user: object::text(spec, "user").to_owned(),
            id: spec["id"].as_u64().and_then(|id| id.try_into().ok()).unwrap_or_default(),
            submitted,
            tasks: if tasks.is_empty() { [state(&job["status"])].into() } else { tasks.into() },
        })
    }

    fn is_meant(&self, query: &TallyQuery, namespace: &str) -> bool {
        self.namespace == namespace
            && (self.user.is_empty() || query.user.as_ref().is_none_or(|user| *user == self.user))
            && query.after.is_none_or(|after| self.submitted >= after)
            && query.before.is_none_or(|before| self.submitted <= before)
            && !(query.unfinished && self.tasks.iter().all(|state| state.has_ended()))
            && self.counted(query).next().is_some()
    }

    /// Its tasks in the states that the query names.
    fn counted<'a>(&'a self, query: &'a TallyQuery) -> impl Iterator<Item = ManagedState> + 'a {
        let is_named = |state: &ManagedState| query.states.iter().any(|name| name == state.as_str());
        self.tasks.iter().copied().filter(move |state| query.states.is_empty() || is_named(state))
    }
}

impl Tallies {
    /// Sets where the jobs are. That is the server that this delegate is a part of, so it is set later.
    pub fn open(&self, source: Arc<dyn Source>) {
        let _ = self.0.source.set(source); // there is one server
    }

    /// Counts. `None`: the server has no managed jobs.
    fn count(&self, namespace: &str, query: &TallyQuery) -> Option<JobTally> {
        let (jobs, _) = self.0.source.get()?.list(&managed_job_gvk())?;
        let mut known = self.0.known.lock().unwrap_or_else(PoisonError::into_inner);
        let mut tally = JobTally::default();
        let mut named: Vec<(Reverse<u32>, &Arc<Packed>)> = Vec::new();
        for job in &jobs {
            let known = known.entry(Arc::as_ptr(job).addr()).or_insert_with(|| {
                let facts = Facts::of(&job.part(parts));
                Known { state: Arc::downgrade(job), facts }
            });
            let Some(facts) = known.facts.as_ref().filter(|facts| facts.is_meant(query, namespace)) else { continue };
            named.push((Reverse(facts.id), job));
            for state in facts.counted(query).filter(|state| !state.has_ended()) {
                let count = tally.tasks.entry(state.as_str().to_owned()).or_default();
                *count = count.saturating_add(1);
            }
        }
        if known.len() > jobs.len() {
            known.retain(|_, known| known.state.strong_count() > 0);
        }
        drop(known);
        tally.jobs = named.len();
        named.sort_by_key(|(id, _)| *id);
        let latest = named.iter().take(query.limit.min(LATEST_MAX));
        tally.latest = latest.map(|(_, job)| object::meta(&job.identity(), "name").to_owned()).collect();
        Some(tally)
    }
}

impl Delegate for Tallies {
    fn group(&self) -> &'static str {
        GROUP
    }

    fn has(&self, plural: &str) -> bool {
        plural == PLURAL
    }

    fn get(&self, wanted: Wanted) -> BoxFuture<'static, Result<Value, Status>> {
        Box::pin(std::future::ready(Err(Status::not_found(GROUP, PLURAL, &wanted.name))))
    }

    fn text(&self, wanted: Wanted, subresource: &str, query: &Query) -> BoxFuture<'static, Result<Text, Status>> {
        let is_known = wanted.version == VERSION && wanted.name == NAME && subresource == TALLY;
        let query = serde_json::from_str::<TallyQuery>(query.get(QUERY).unwrap_or("{}"));
        let tallies = self.clone();
        Box::pin(async move {
            let missing = || Status::not_found(GROUP, PLURAL, &wanted.name);
            if !is_known {
                return Err(missing());
            }
            let query = query.map_err(|error| Status::bad_request(format!("the parameter {QUERY}: {error}")))?;
            let namespace = wanted.namespace.clone();
            let counted = tokio::task::spawn_blocking(move || tallies.count(&namespace, &query)).await;
            let tally = counted.expect("counting does not panic").ok_or_else(missing)?;
            let text = serde_json::to_vec(&tally).expect("plain data");
            Ok(stream::iter([text.into()]).boxed())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::object::Gvk;
    use driver::Told;
    use futures::stream::BoxStream;
    use serde_json::json;

    /// Jobs that a test sets.
    #[derive(Default)]
    struct Jobs(Mutex<Vec<Arc<Packed>>>);

    impl Source for Jobs {
        fn has(&self, gvk: &Gvk) -> bool {
            *gvk == managed_job_gvk()
        }

        fn list(&self, gvk: &Gvk) -> Option<(Vec<Arc<Packed>>, u64)> {
            self.has(gvk).then(|| (self.0.lock().unwrap().clone(), 1))
        }

        fn watch(&self, _: &Gvk, _: u64) -> Option<BoxStream<'static, Told>> {
            None
        }
    }

    fn job(id: u32, user: &str, states: &[&str]) -> Arc<Packed> {
        let tasks: Vec<Value> = states.iter().map(|state| json!({"state": state})).collect();
        let made = json!({
            "metadata": {"name": format!("job-{id}"), "namespace": "default", "creationTimestamp": "1970-01-01T00:01:40Z"},
            "spec": {"id": id, "user": user, "name": "x"}, "status": {"tasks": tasks},
        });
        Arc::new(Packed::from_text(made.to_string().into_bytes()))
    }

    #[test]
    fn jobs_are_counted_as_they_are_now() {
        let jobs = Arc::new(Jobs::default());
        let tallies = Tallies::default();
        tallies.open(jobs.clone());
        *jobs.0.lock().unwrap() = vec![
            job(1, "ann", &["SUCCEEDED"]),
            job(10, "ann", &["SUCCEEDED", "RUNNING"]),
            job(2, "bob", &["PENDING"]),
            job(3, "", &[]),
        ];
        let count = |query: TallyQuery| tallies.count("default", &TallyQuery { limit: 2, ..query }).unwrap();
        let all = count(TallyQuery::default());
        assert_eq!((all.jobs, all.latest), (4, vec!["job-10".to_owned(), "job-3".to_owned()]));
        assert_eq!(all.tasks, [("PENDING".to_owned(), 2), ("RUNNING".to_owned(), 1)].into());
        let mine = count(TallyQuery { user: Some("ann".to_owned()), unfinished: true, ..TallyQuery::default() });
        assert_eq!(mine.latest, ["job-10", "job-3"], "job 3 has no user, so each user is shown it");
        let states = vec!["SUCCEEDED".to_owned()];
        assert_eq!(count(TallyQuery { states, ..TallyQuery::default() }).latest, ["job-10", "job-1"]);
        assert_eq!(count(TallyQuery { after: Some(101), ..TallyQuery::default() }).jobs, 0);
        assert_eq!(tallies.count("other", &TallyQuery::default()).unwrap().jobs, 0);
        *jobs.0.lock().unwrap() = vec![job(10, "ann", &["SUCCEEDED", "SUCCEEDED"])];
        let later = count(TallyQuery::default());
        assert_eq!((later.jobs, later.tasks.len()), (1, 0));
        assert_eq!(tallies.0.known.lock().unwrap().len(), 1, "what is gone is forgotten");
    }
}
