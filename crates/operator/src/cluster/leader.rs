//! Leader election over a Lease, in client-go's protocol, so that upstream's controller and ours are never at work
//! at the same time.
//!
//! A record that does not change for its duration, by our own clock since we first saw it, has no leader any more: clocks of
//! different machines are never compared.

use api::config::LeaderElection;
use api::config::duration_secs;
use api::object::text;
use api::time::after;
use http::{Method, Request};
use jiff::Timestamp;
use kube::Client;
use serde_json::{Value, json};
use std::future::Future;
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// How to elect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Election {
    pub namespace: String,
    pub name: String,
    /// Who we are: unique among the replicas.
    pub identity: String,
    /// How long a leader that is not heard of counts.
    pub lease: Duration,
    /// How long to try to renew before giving up.
    pub renew: Duration,
    /// Between tries.
    pub retry: Duration,
}

impl Election {
    /// From the configuration file; the error says which field is wrong, and how.
    pub fn new(config: &LeaderElection, namespace: &str, identity: String) -> Result<Self, (String, String)> {
        let field = |name: &str| format!("leaderElection.{name}");
        let duration = |name: &str, text: &str| {
            let secs = duration_secs(text).filter(|secs| *secs > 0.0 && secs.is_finite());
            secs.map(|secs| Duration::try_from_secs_f64(secs).unwrap_or(Duration::MAX))
                .ok_or_else(|| (field(name), format!("{text:?} is not a duration: try 15s or 1m30s")))
        };
        let lease = duration("leaseDuration", &config.lease_duration)?;
        let renew = duration("renewDeadline", &config.renew_deadline)?;
        let retry = duration("retryPeriod", &config.retry_period)?;
        if lease <= renew {
            return Err((field("leaseDuration"), "must be greater than renewDeadline".to_owned()));
        }
        if renew <= retry {
            return Err((field("renewDeadline"), "must be greater than retryPeriod".to_owned()));
        }
        if config.resource_lock != "leases" {
            let detail = format!("Unsupported value: {:?}: supported values: \"leases\"", config.resource_lock);
            return Err((field("resourceLock"), detail));
        }
        if config.resource_name.is_empty() {
            return Err((field("resourceName"), "Required value".to_owned()));
        }
        let namespace = if config.resource_namespace.is_empty() { namespace } else { &config.resource_namespace };
        let (namespace, name) = (namespace.to_owned(), config.resource_name.clone());
        Ok(Self { namespace, name, identity, lease, renew, retry })
    }
}

/// A record as it was first seen.
#[derive(Debug)]
struct Seen {
    spec: Value,
    at: Instant,
}

/// What a look at the Lease says.
#[derive(Debug, PartialEq)]
enum Turn {
    /// Write this spec: we lead if the write succeeds.
    Take(Value),
    /// Somebody else leads.
    Wait { holder: String },
}

fn micro(now: Timestamp) -> String {
    now.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string()
}

/// Whether it is our turn. `seen` remembers the record and when it last changed.
fn turn(election: &Election, lease: Option<&Value>, seen: &mut Option<Seen>, at: Instant, now: Timestamp) -> Turn {
    let spec = lease.map_or(Value::Null, |lease| lease["spec"].clone());
    if seen.as_ref().is_none_or(|seen| seen.spec != spec) {
        *seen = Some(Seen { spec: spec.clone(), at });
    }
    let since = seen.as_ref().map_or(at, |seen| seen.at);
    let holder = text(&spec, "holderIdentity").to_owned();
    let ours = holder == election.identity;
    let duration = Duration::from_secs(spec["leaseDurationSeconds"].as_u64().unwrap_or(0));
    if !holder.is_empty() && !ours && at < after(since, duration) {
        return Turn::Wait { holder };
    }
    let transitions = spec["leaseTransitions"].as_i64().unwrap_or(0);
    let acquired = if ours { spec["acquireTime"].clone() } else { json!(micro(now)) };
    Turn::Take(json!({
        "holderIdentity": election.identity,
        "leaseDurationSeconds": election.lease.as_secs().max(1),
        "acquireTime": acquired,
        "renewTime": micro(now),
        "leaseTransitions": if ours || lease.is_none() { transitions } else { transitions + 1 },
    }))
}

/// Takes part in an election.
pub struct Elector {
    client: Client,
    election: Election,
    seen: Option<Seen>,
}

impl Elector {
    pub fn new(client: Client, election: Election) -> Self {
        Self { client, election, seen: None }
    }

    /// Runs `work` whenever we lead, until `stop`.
    ///
    /// Guarantees: `work` has been told to stop and has ended before the lease can run out (as long as it ends within
    /// leaseDuration - renewDeadline), and before the lease is given back at `stop`.
    pub async fn run<W, F>(mut self, stop: CancellationToken, mut changed: impl FnMut(bool), mut work: W)
    where
        W: FnMut(CancellationToken) -> F,
        F: Future<Output = ()> + Send + 'static,
    {
        while self.acquire(&stop).await {
            tracing::info!(lease = self.election.name, identity = self.election.identity, "leading");
            changed(true);
            let term = stop.child_token();
            let mut working = tokio::spawn(work(term.clone()));
            let kept = self.keep(&stop).await;
            term.cancel();
            if let Err(error) = (&mut working).await {
                tracing::error!(%error, "bug: the work of the leader crashed");
            }
            changed(false);
            if kept {
                self.release().await;
                return;
            }
            tracing::error!(lease = self.election.name, "lost the lease: all work is stopped; waiting to lead again");
        }
    }

    /// Waits until we lead; false when stopped before.
    async fn acquire(&mut self, stop: &CancellationToken) -> bool {
        let mut waits_for = None;
        loop {
            tokio::select! {
                tried = self.attempt() => match tried {
                    Ok(None) => return true,
                    Ok(Some(holder)) if waits_for.as_ref() != Some(&holder) => {
                        tracing::info!(lease = self.election.name, holder, "waiting to lead");
                        waits_for = Some(holder);
                    }
                    Ok(Some(_)) => {}
                    Err(error) => tracing::warn!(lease = self.election.name, %error, "cannot take part in the election"),
                },
                () = stop.cancelled() => return false,
            }
            tokio::select! {
                () = tokio::time::sleep(self.election.retry) => {}
                () = stop.cancelled() => return false,
            }
        }
    }

    /// Renews until stopped (true) or until the lease is lost (false).
    async fn keep(&mut self, stop: &CancellationToken) -> bool {
        let mut renewed = Instant::now();
        loop {
            tokio::select! {
                () = tokio::time::sleep(self.election.retry) => {}
                () = stop.cancelled() => return true,
            }
            let deadline = after(renewed, self.election.renew);
            let began = Instant::now();
            let tried = tokio::select! {
                tried = tokio::time::timeout_at(deadline, self.attempt()) => tried,
                () = stop.cancelled() => return true,
            };
            match tried {
                // what counts is when we asked: the answer may have taken its time
                Ok(Ok(None)) => renewed = began,
                Ok(Ok(Some(holder))) => {
                    tracing::error!(lease = self.election.name, holder, "somebody else has taken the lease");
                    return false;
                }
                Ok(Err(error)) if Instant::now() < deadline => {
                    tracing::warn!(lease = self.election.name, %error, "cannot renew the lease; trying again");
                }
                Ok(Err(_)) | Err(_) => return false,
            }
        }
    }

    /// One try: `None` when we lead now, else the name of the leader.
    async fn attempt(&mut self) -> Result<Option<String>, kube::Error> {
        let lease = self.get().await?;
        match turn(&self.election, lease.as_ref(), &mut self.seen, Instant::now(), Timestamp::now()) {
            Turn::Wait { holder } => Ok(Some(holder)),
            Turn::Take(spec) => match self.put(lease, spec).await {
                Ok(()) => Ok(None),
                // somebody was faster
                Err(kube::Error::Api(status)) if status.code == 409 => Ok(Some("another candidate".to_owned())),
                Err(error) => Err(error),
            },
        }
    }

    fn path(&self) -> String {
        format!("/apis/coordination.k8s.io/v1/namespaces/{}/leases", self.election.namespace)
    }

    async fn get(&self) -> Result<Option<Value>, kube::Error> {
        let path = format!("{}/{}", self.path(), self.election.name);
        match self.client.request(form(Method::GET, &path, None)).await {
            Ok(lease) => Ok(Some(lease)),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn put(&self, lease: Option<Value>, spec: Value) -> Result<(), kube::Error> {
        let request = match lease {
            Some(mut lease) => {
                lease["spec"] = spec;
                form(Method::PUT, &format!("{}/{}", self.path(), self.election.name), Some(&lease))
            }
            None => {
                let metadata = json!({"name": self.election.name, "namespace": self.election.namespace});
                let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec});
                form(Method::POST, &self.path(), Some(&lease))
            }
        };
        self.client.request::<Value>(request).await.map(|_| ())
    }

    /// Gives the lease back, so that the next leader need not wait for it to run out.
    async fn release(&self) {
        let given_back = async {
            let Some(lease) = self.get().await? else { return Ok(()) };
            if lease["spec"]["holderIdentity"] != self.election.identity.as_str() {
                return Ok(());
            }
            let mut spec = lease["spec"].clone();
            spec["holderIdentity"] = json!("");
            spec["leaseDurationSeconds"] = json!(1);
            spec["renewTime"] = json!(micro(Timestamp::now()));
            self.put(Some(lease), spec).await
        };
        match tokio::time::timeout(self.election.retry, given_back).await {
            Ok(Ok(())) => tracing::info!(lease = self.election.name, "gave the lease back"),
            Ok(Err(error)) => {
                tracing::warn!(lease = self.election.name, %error, "could not give the lease back; it will run out")
            }
            Err(_) => {
                tracing::warn!(lease = self.election.name, "could not give the lease back in time; it will run out")
            }
        }
    }
}

/// A request with a JSON body; paths are ours and well-formed.
pub(crate) fn form(method: Method, path: &str, body: Option<&Value>) -> Request<Vec<u8>> {
    let builder = Request::builder().method(method).uri(path).header(http::header::CONTENT_TYPE, "application/json");
    let body = body.map(|body| body.to_string().into_bytes()).unwrap_or_default();
    builder.body(body).expect("invariant: paths are made of names of objects")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn election(identity: &str) -> Election {
        Election::new(&LeaderElection::default(), "ns", identity.to_owned()).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_is_taken_when_nobody_has_it_renewed_by_its_holder_and_left_to_others() {
        let (a, b) = (election("a"), election("b"));
        let (mut a_saw, mut b_saw) = (None, None);
        let now: Timestamp = "2026-01-02T03:04:05.000006Z".parse().unwrap();
        let Turn::Take(spec) = turn(&a, None, &mut a_saw, Instant::now(), now) else { panic!("a must lead") };
        assert_eq!(spec["renewTime"], "2026-01-02T03:04:05.000006Z");
        assert_eq!((&spec["leaseDurationSeconds"], &spec["leaseTransitions"]), (&json!(15), &json!(0)));
        let lease = json!({"spec": spec});
        let wait = Turn::Wait { holder: "a".to_owned() };
        assert_eq!(turn(&b, Some(&lease), &mut b_saw, Instant::now(), now), wait);
        tokio::time::advance(Duration::from_secs(14)).await;
        assert_eq!(turn(&b, Some(&lease), &mut b_saw, Instant::now(), now), wait);
        // renewed: b's clock starts anew
        let Turn::Take(again) = turn(&a, Some(&lease), &mut a_saw, Instant::now(), Timestamp::now()) else { panic!() };
        assert_eq!(again["acquireTime"], lease["spec"]["acquireTime"]);
        let lease = json!({"spec": again});
        assert_eq!(turn(&b, Some(&lease), &mut b_saw, Instant::now(), now), wait);
        tokio::time::advance(Duration::from_secs(15)).await;
        let Turn::Take(taken) = turn(&b, Some(&lease), &mut b_saw, Instant::now(), now) else { panic!("it ran out") };
        assert_eq!(taken["leaseTransitions"], 1);
        // given back: at once
        let free = json!({"spec": {"holderIdentity": "", "leaseDurationSeconds": 1, "leaseTransitions": 1}});
        assert!(matches!(turn(&b, Some(&free), &mut None, Instant::now(), now), Turn::Take(_)));
    }

    #[test]
    fn durations_must_fit_each_other() {
        let with = |change: fn(&mut LeaderElection)| {
            let mut config = LeaderElection::default();
            change(&mut config);
            Election::new(&config, "ns", "me".to_owned()).map_err(|(field, why)| format!("{field}: {why}"))
        };
        let error = with(|c| c.lease_duration = "10s".to_owned()).unwrap_err();
        assert_eq!(error, "leaderElection.leaseDuration: must be greater than renewDeadline");
        assert!(with(|c| c.retry_period = "soon".to_owned()).unwrap_err().contains("leaderElection.retryPeriod"));
        assert!(with(|c| c.resource_lock = "endpoints".to_owned()).unwrap_err().contains("supported values"));
        assert_eq!(with(|c| c.resource_namespace = "other".to_owned()).unwrap().namespace, "other");
    }
}
