//! The reconciler of Serving and Pool: keeps as many replicas as the policy asks for, replaces those of older versions, and ends all of them
//! at the end.
//!
//! A replica is a ManagedJob that is never started again; its machines, its evidence and its output are that job's affair. The status
//! records a replica before its job is created, so a crash between the two makes no second one. [`crate::autoscale`] says how many there
//! are. The load balancer of a service is a pod: it probes the replicas and reports in `status.load`.

mod balancer;
mod observed;
mod replica;
mod rollout;
pub mod submitted;

pub use observed::Observed;

use api::object::{self, Gvk, Target};
use api::sky::{
    FleetState, FleetStatus, Replica, ReplicaState as State, cluster_gvk, keys, launch_gvk, managed_job_gvk, pool_gvk,
    serving_gvk,
};
use jiff::{SignedDuration, Timestamp};
use reconcile::{Decision, Event, EventType, Next, Primary, Reconciler, StatusWrite, Wakes, Watch, World, Write};
use serde_json::{Value, json};

const REPORTER: &str = "sky-serve-controller";
/// Time until the next look if no event announces the change.
const SOON: SignedDuration = SignedDuration::from_secs(1);
/// Failed replicas that the status lists at most.
const FAILED_MAX: usize = 10;

/// What replicas are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FleetKind {
    Service,
    Pool,
}

impl FleetKind {
    /// The kind of its objects.
    pub fn gvk(self) -> Gvk {
        match self {
            Self::Service => serving_gvk(),
            Self::Pool => pool_gvk(),
        }
    }

    /// The beginning of its jobs' names. No job of a user begins with it.
    fn prefix(self) -> &'static str {
        match self {
            Self::Service => "serve",
            Self::Pool => "pool",
        }
    }

    /// The value of the label [`keys::FLEET_KIND`].
    fn label(self) -> &'static str {
        match self {
            Self::Service => "service",
            Self::Pool => "pool",
        }
    }
}

/// The reconciler of one of the two kinds.
pub struct FleetController(pub FleetKind);

fn core(kind: &str) -> Gvk {
    Gvk::new("", "v1", kind)
}

/// The service or the pool that a job is a replica of, if it is of this kind: each of the two reconcilers wakes for its own only.
fn of_job(kind: FleetKind, job: &Value) -> Vec<Target> {
    if object::label(job, keys::FLEET_KIND) != Some(kind.label()) {
        return Vec::new();
    }
    let name = object::label(job, keys::FLEET);
    let target = |name| Target { gvk: kind.gvk(), key: object::Key::new(object::meta(job, "namespace"), name) };
    name.map(target).into_iter().collect()
}

/// The same for the job that a cluster is of.
fn of_cluster(kind: FleetKind, world: &dyn World, cluster: &Value) -> Vec<Target> {
    let Some(job) = object::label(cluster, keys::MANAGED_JOB) else { return Vec::new() };
    let key = object::Key::new(object::meta(cluster, "namespace"), job);
    world.head(&managed_job_gvk(), &key).map(|job| of_job(kind, &job)).unwrap_or_default()
}

impl Reconciler for FleetController {
    type Observed = Observed;

    fn name(&self) -> &'static str {
        match self.0 {
            FleetKind::Service => "serving",
            FleetKind::Pool => "pool",
        }
    }

    fn primary(&self) -> Primary {
        Primary::Kind(self.0.gvk())
    }

    fn watches(&self) -> Vec<Watch> {
        type Keys = fn(&dyn World, &Value) -> Vec<Target>;
        let (of_job, of_cluster): (Keys, Keys) = match self.0 {
            FleetKind::Service => (
                |_, job| of_job(FleetKind::Service, job),
                |world, cluster| of_cluster(FleetKind::Service, world, cluster),
            ),
            FleetKind::Pool => {
                (|_, job| of_job(FleetKind::Pool, job), |world, cluster| of_cluster(FleetKind::Pool, world, cluster))
            }
        };
        let mut watches = vec![
            Watch { gvk: managed_job_gvk(), wakes: Wakes::Keys(of_job) },
            Watch { gvk: cluster_gvk(), wakes: Wakes::Keys(of_cluster) },
            Watch { gvk: launch_gvk(), wakes: Wakes::Nothing },
            Watch { gvk: core("ConfigMap"), wakes: Wakes::Nothing },
        ];
        if self.0 == FleetKind::Service {
            watches.push(Watch { gvk: core("Pod"), wakes: Wakes::ControllerOwner });
        }
        watches
    }

    fn observe(&self, world: &dyn World, target: &Target) -> Option<Observed> {
        (target.gvk == self.0.gvk()).then(|| Observed::look(world, target, self.0)).flatten()
    }

    fn decide(&self, observed: &Observed, now: Timestamp) -> Decision {
        observed.decide(now)
    }
}

/// What comes of a look: the status, the writes before it, and when to look again.
struct Turn {
    status: FleetStatus,
    writes: Vec<Write>,
    next: Next,
}

impl Turn {
    /// Looks again after this time at the latest.
    fn within(&mut self, pause: SignedDuration) {
        let pause = pause.max(SignedDuration::from_millis(1));
        self.next = match self.next {
            Next::After(sooner) if sooner <= pause => Next::After(sooner),
            _ => Next::After(pause),
        };
    }
}

impl Observed {
    fn decide(&self, now: Timestamp) -> Decision {
        let mut turn = Turn { status: self.status.clone(), writes: Vec::new(), next: Next::AwaitChange };
        if object::is_terminating(&self.object) {
            self.end(&mut turn, now);
            return self.told(turn);
        }
        rollout::note_versions(&mut turn.status, &self.spec);
        self.carry_over(&mut turn.status);
        self.watch_replicas(&mut turn, now);
        match self.section(&turn.status) {
            Ok(section) => {
                self.roll(&mut turn, section, now);
                (turn.status.state, turn.status.message) = self.state(&turn.status, now);
                if self.kind == FleetKind::Service {
                    self.balance(&mut turn);
                }
            }
            Err(why) if self.is_late(now) => {
                turn.status.message = why;
                turn.within(SOON);
            }
            Err(why) => (turn.status.state, turn.status.message) = (FleetState::ControllerFailed, why),
        }
        self.carry_out(&mut turn, now);
        note_ready(&mut turn.status, now);
        self.told(turn)
    }

    /// The end of a service or a pool that was deleted: first its replicas go.
    fn end(&self, turn: &mut Turn, now: Timestamp) {
        turn.status.state = FleetState::ShuttingDown;
        turn.status.active_versions.clear();
        turn.status.ready_since.clear();
        turn.status.replicas.iter_mut().for_each(|replica| rollout::end(replica, now));
        turn.status.message = match self.jobs.len() {
            0 => String::new(),
            1 => "1 replica is being terminated".to_owned(),
            many => format!("{many} replicas are being terminated"),
        };
        for own in &self.jobs {
            turn.writes.extend(self.ended(own));
        }
        if self.jobs.is_empty() {
            turn.writes.extend(self.release());
        } else {
            turn.within(SOON);
        }
    }

    /// Creates the jobs of replicas that have none yet, and ends those of replicas that are on their way out.
    fn carry_out(&self, turn: &mut Turn, now: Timestamp) {
        for replica in &turn.status.replicas {
            match self.job(replica.number) {
                None if replica.state.has_ended() || replica.is_ending => {}
                None => turn.writes.extend(self.created(&turn.status, replica)),
                Some(own) if replica.state.is_failed() => turn.writes.extend(self.cancelled(own)),
                Some(_) if replica.is_ending && !self.is_drained(replica, now) => {}
                Some(own) if replica.is_ending || replica.state.has_ended() => turn.writes.extend(self.ended(own)),
                Some(_) => {}
            }
        }
        // the records of replicas that are gone; failures are remembered, with the output of their jobs
        let is_left = |replica: &Replica| {
            let is_over = replica.is_ending || replica.state.has_ended();
            !is_over || replica.state.is_failed() || self.job(replica.number).is_some()
        };
        turn.status.replicas.retain(is_left);
        let failed: Vec<u32> =
            turn.status.replicas.iter().filter(|one| one.state.is_failed()).map(|one| one.number).collect();
        let surplus = failed.len().saturating_sub(FAILED_MAX);
        let forgotten: Vec<u32> = failed.into_iter().take(surplus).collect();
        for number in &forgotten {
            turn.writes.extend(self.job(*number).and_then(|own| self.ended(own)));
        }
        turn.status.replicas.retain(|one| !forgotten.contains(&one.number) || self.job(one.number).is_some());
        // jobs without a record
        for own in self.jobs.iter().filter(|own| !turn.status.replicas.iter().any(|one| one.number == own.number())) {
            turn.writes.extend(self.ended(own));
        }
        if turn.status.replicas.iter().any(|one| one.is_ending) {
            turn.within(SOON);
        }
    }

    /// The decision, with the status if it differs.
    fn told(&self, turn: Turn) -> Decision {
        let Turn { status, writes, next } = turn;
        if status == self.status {
            return Decision { writes, next, ..Decision::default() };
        }
        let before = serde_json::to_value(&self.status).unwrap_or_default();
        let mut body = crate::status::replacing(&before, serde_json::to_value(&status).unwrap_or_default());
        // the load balancer writes it
        if let Some(members) = body.as_object_mut() {
            members.remove("load");
        }
        let version = object::resource_version(&self.object);
        let patch = json!({"metadata": {"resourceVersion": version}, "status": body});
        let events = self.changes(&status);
        Decision { writes, status: Some(StatusWrite::Merge(patch)), events, next, ..Decision::default() }
    }

    /// An event for each replica that comes to another state, and for an update that has stopped.
    fn changes(&self, status: &FleetStatus) -> Vec<Event> {
        let event = |is_bad: bool, reason: &'static str, message: String| Event {
            regarding: None,
            kind: if is_bad { EventType::Warning } else { EventType::Normal },
            reason: reason.into(),
            message,
            reporter: REPORTER,
            action: "Reconciling",
        };
        let before = |number: u32| self.status.replicas.iter().find(|one| one.number == number).map(|one| one.state);
        let changed = status.replicas.iter().filter(|one| before(one.number) != Some(one.state));
        let mut events: Vec<Event> = changed
            .map(|one| {
                let why = if one.message.is_empty() { String::new() } else { format!(": {}", one.message) };
                let is_bad = one.state.is_failed() || one.state == State::Preempted;
                event(is_bad, "Replica", format!("replica {} is {}{why}", one.number, one.state.as_str()))
            })
            .collect();
        let was_stopped =
            |number: u32| self.status.versions.iter().any(|one| one.number == number && !one.stopped.is_empty());
        let stopped = status.versions.iter().filter(|one| !one.stopped.is_empty() && !was_stopped(one.number));
        events.extend(stopped.map(|one| event(true, "Stopped", format!("version {}: {}", one.number, one.stopped))));
        events
    }
}

/// Notes since when a replica has been ready without a break.
fn note_ready(status: &mut FleetStatus, now: Timestamp) {
    match status.replicas.iter().any(|one| one.state == State::Ready) {
        true if status.ready_since.is_empty() => status.ready_since = now.to_string(),
        true => {}
        false => status.ready_since.clear(),
    }
}
