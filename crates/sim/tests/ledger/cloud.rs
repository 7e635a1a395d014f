//! A provider of machines that fails: it loses answers, makes machines late, twice or under the name of an earlier one, returns outdated
//! lists, and takes time for deletions.

use crate::life::{Life, Side};
use futures::FutureExt;
use infra::{Answering, Provider};
use managed::provider::{Failure, Fate, Found, Handle, Request, Seen, State};
use sim::dice::Dice;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// It replaces the provider of this computer, on which a task may run without any settings.
pub const NAME: &str = api::sky::providers::LOCAL;
/// How long the provider fails, from the action under test on.
const STORM: Duration = Duration::from_secs(90);

/// Planted bugs: each must fail a run, or the runs prove nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// The machine is requested before its object is written.
    MachineBeforeObject,
    /// The object is removed after the first call to delete, whatever the provider answers.
    ReleasedUnheard,
    /// A restarted control plane uses new tokens.
    TokensOfTheProcess,
    /// The object is removed before the provider is asked to end the machine.
    ObjectBeforeMachine,
    /// Machines are not compared with the ledger.
    NoSweep,
    /// If two machines have one token, the sweep sees only one.
    TwinsLive,
    /// A machine that is not listed is reported as ended.
    AbsenceIsLoss,
    /// A launch does not check whether its job exists.
    JobUnseen,
}

#[derive(Clone, Debug)]
struct Made {
    seen: Seen,
    /// The time from which lists and lookups show it.
    visible: Instant,
    /// When it will be gone, if it is being ended.
    gone: Option<Instant>,
    /// Whether an object has recorded its name. A machine that comes late, with the same token and a name that is free again, is another
    /// machine.
    is_noted: bool,
}

/// The machines, and their history.
pub struct Cloud {
    state: Mutex<Inside>,
    pub bug: Option<Bug>,
}

struct Inside {
    chance: Dice,
    calm: Option<Instant>,
    /// Whether there is always room. A cluster with one place waits for room by the real clock, which does not move here.
    has_room: bool,
    machines: Vec<Made>,
    /// How many machines were ever made.
    made: usize,
    /// Tokens of machines that will still be made.
    late: Vec<String>,
    /// The ids that objects have recorded, by token.
    noted: BTreeMap<String, String>,
    broken: Option<String>,
}

/// Whether a token has an object.
pub type Stands = dyn Fn(&str) -> bool + Send + Sync;

/// The token of an object, from the token of a request: [`Bug::TokensOfTheProcess`] appends a number.
pub fn object_of(token: &str) -> &str {
    token.split('#').next().unwrap_or_default()
}

/// The provider's view of a machine for a control plane.
fn shown(seen: &Seen) -> Seen {
    Seen { token: object_of(&seen.token).to_owned(), ..seen.clone() }
}

fn lost<T>() -> Result<T, Failure> {
    Err(Failure::new(Fate::Retry, "no answer"))
}

impl Inside {
    fn wrong(&mut self, of_hundred: u64) -> bool {
        self.calm.is_some_and(|calm| Instant::now() < calm) && self.chance.chance(of_hundred)
    }

    fn clear(&mut self) {
        let now = Instant::now();
        self.machines.retain(|made| made.gone.is_none_or(|gone| now < gone));
    }

    fn find(&mut self, machine: &Handle) -> Option<usize> {
        self.clear();
        let now = Instant::now();
        self.machines.iter().position(|made| {
            made.seen.token == machine.token
                && match &machine.id {
                    // the name is enough: a caller that knows a machine's name can see it
                    Some(id) => made.seen.id == *id,
                    None => made.visible <= now,
                }
        })
    }

    /// Whether a machine of this token will still be made, or will become visible.
    fn may_come(&self, token: &str) -> bool {
        self.late.iter().any(|late| late == token) || self.machines.iter().any(|made| made.seen.token == token)
    }

    fn appear(&mut self, token: &str, node: &str) -> Seen {
        // the lowest free number: names are reused, like those of a pool's hosts
        let free = (0..).find(|at| !self.machines.iter().any(|made| made.seen.id == format!("pool/h{at}")));
        let seen = Seen {
            token: token.into(),
            id: format!("pool/h{}", free.unwrap_or_default()),
            state: State::Running,
            node: node.into(),
            address: "10.0.0.1".into(),
            home: "/home".into(),
        };
        let lag = if self.wrong(40) { self.chance.below(40) } else { 0 };
        self.machines.push(Made {
            seen: seen.clone(),
            visible: Instant::now() + Duration::from_secs(lag),
            gone: None,
            is_noted: false,
        });
        self.made += 1;
        seen
    }

    fn breaks(&mut self, what: String) {
        self.broken.get_or_insert(what);
    }
}

impl Cloud {
    pub fn new(seed: u64, bug: Option<Bug>) -> Self {
        let (machines, noted) = (Vec::new(), BTreeMap::new());
        Self {
            state: Mutex::new(Inside {
                chance: Dice::new(seed),
                calm: None,
                has_room: false,
                machines,
                made: 0,
                late: Vec::new(),
                noted,
                broken: None,
            }),
            bug,
        }
    }

    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the provider fail for a while from now on.
    pub fn storm(&self) {
        self.inside().calm = Some(Instant::now() + STORM);
    }

    /// Provides room always, from now on.
    pub fn has_room(&self) {
        self.inside().has_room = true;
    }

    pub fn made(&self) -> usize {
        self.inside().made
    }

    pub fn broken(&self) -> Option<String> {
        self.inside().broken.clone()
    }

    /// The present machines; `None` while some will still be made.
    pub fn machines(&self) -> Option<Vec<Seen>> {
        let mut inside = self.inside();
        inside.clear();
        inside.late.is_empty().then(|| inside.machines.iter().map(|made| made.seen.clone()).collect())
    }

    /// Checks what must hold at every moment: a machine whose name an object has recorded has an object. `objects` are tokens and recorded
    /// ids.
    pub fn look(&self, objects: &[(String, String)]) {
        let mut inside = self.inside();
        inside.clear();
        for (token, id) in objects.iter().filter(|(_, id)| !id.is_empty()) {
            let is_new = inside.noted.insert(token.clone(), id.clone()).as_ref() != Some(id);
            let of_it = |made: &&mut Made| is_new && made.seen.token == *token && made.seen.id == *id;
            inside.machines.iter_mut().filter(of_it).for_each(|made| made.is_noted = true);
        }
        let stands = |made: &&Made| objects.iter().any(|(held, _)| *held == made.seen.token);
        let alone = inside.machines.iter().find(|made| made.is_noted && !stands(made)).map(|made| made.seen.id.clone());
        if let Some(id) = alone {
            let what = format!("the object of machine {id} went before the machine");
            inside.breaks(what);
        }
    }

    /// The token of a request; `life` is the number of the control plane.
    fn token(&self, token: &str, life: u32) -> String {
        match self.bug {
            Some(Bug::TokensOfTheProcess) => format!("{token}#{life}"),
            _ => token.to_owned(),
        }
    }

    /// Makes a machine that has no object.
    pub fn early(&self) {
        let mut inside = self.inside();
        let made = inside.appear("early", "early");
        // the sweep ends it within a minute, so it is reported at once
        inside.breaks(format!("machine {} is made, and no object says so", made.id));
    }

    async fn create(self: &Arc<Self>, request: &Request, life: u32, stands: &Stands) -> Result<Seen, Failure> {
        let token = self.token(&request.token, life);
        let mut inside = self.inside();
        if inside.wrong(15) {
            return lost(); // it never arrived
        }
        if !stands(&request.token) {
            inside.breaks(format!("a machine is asked for under {}, for which no object stands", request.token));
        }
        let known = inside.find(&Handle { token: token.clone(), id: None, generation: 0 });
        let now = Instant::now();
        let again = |made: &&Made| made.visible <= now && object_of(&made.seen.token) == request.token;
        if known.is_none()
            && let Some(made) = inside.machines.iter().find(again)
        {
            let what = format!("machine {} is there, and is made once more under another token", made.seen.id);
            inside.breaks(what);
        }
        let answer = match known {
            Some(at) => Ok(inside.machines[at].seen.clone()),
            None if !inside.has_room && inside.wrong(15) => return Err(Failure::new(Fate::NextCandidate, "full")),
            None if inside.wrong(20) => {
                inside.late.push(token.clone());
                let after = Duration::from_secs(1 + inside.chance.below(60));
                let (cloud, node) = (self.clone(), request.node.clone());
                tokio::spawn(async move {
                    sleep(after).await;
                    let mut inside = cloud.inside();
                    let came = inside.late.iter().position(|late| *late == token);
                    came.map(|at| inside.late.swap_remove(at));
                    inside.appear(&token, &node);
                });
                return lost();
            }
            None => Ok(inside.appear(&token, &request.node)),
        };
        if inside.wrong(18) { lost() } else { answer }
    }

    /// Any other call about one machine.
    fn about(&self, machine: &Handle, change: impl FnOnce(&mut Inside, usize)) -> Result<Found, Failure> {
        let mut inside = self.inside();
        if inside.wrong(15) {
            return lost();
        }
        // tokens of a process are recognized by their beginning
        let named = inside.machines.iter().map(|made| made.seen.token.clone());
        let mut named = named.filter(|token| object_of(token) == machine.token);
        let token = named.next().unwrap_or_else(|| machine.token.clone());
        drop(named);
        let machine = Handle { token, ..machine.clone() };
        if let Some(at) = inside.find(&machine) {
            change(&mut inside, at);
        }
        let found = match inside.find(&machine) {
            Some(_) if inside.wrong(10) => Found::Absent, // a list that lags
            Some(at) => Found::There(shown(&inside.machines[at].seen)),
            None if machine.id.is_none() && inside.may_come(&machine.token) => Found::Absent,
            None => Found::ended("it is terminated"),
        };
        let found = match found {
            Found::Absent if self.bug == Some(Bug::AbsenceIsLoss) => Found::ended("it is not listed"),
            found => found,
        };
        if inside.wrong(18) { lost() } else { Ok(found) }
    }

    fn turn(&self, machine: &Handle, state: State) -> Result<Found, Failure> {
        self.about(machine, |inside, at| {
            let held = &mut inside.machines[at].seen;
            if held.state != State::Ending {
                held.state = state;
            }
        })
    }

    fn delete(&self, machine: &Handle) -> Result<Found, Failure> {
        let takes = Duration::from_secs(3);
        let answer = self.about(machine, |inside, at| {
            let made = &mut inside.machines[at];
            made.seen.state = State::Ending;
            made.gone.get_or_insert(Instant::now() + takes);
        });
        if self.bug == Some(Bug::ReleasedUnheard) { Ok(Found::ended("nobody looked")) } else { answer }
    }

    fn list(&self) -> Result<Vec<Seen>, Failure> {
        let mut inside = self.inside();
        if inside.wrong(15) {
            return lost();
        }
        inside.clear();
        let now = Instant::now();
        let visible = inside.machines.iter().filter(|made| made.visible <= now);
        let mut list: Vec<Seen> = visible.map(|made| shown(&made.seen)).collect();
        match self.bug {
            Some(Bug::NoSweep) => list.clear(),
            Some(Bug::TwinsLive) => {
                list.reverse();
                list.dedup_by(|one, other| one.token == other.token);
            }
            _ => {}
        }
        Ok(list)
    }
}

/// The provider, as one control plane calls it.
pub struct Called {
    pub cloud: Arc<Cloud>,
    pub life: Arc<Life>,
    pub stands: Arc<Stands>,
}

impl Called {
    /// Makes a call, which takes time. The control plane may be killed right before or right after it.
    fn call<'a, T: Send + 'a>(
        &'a self,
        what: &'static str,
        work: impl Future<Output = Result<T, Failure>> + Send + 'a,
    ) -> Answering<'a, T> {
        async move {
            let point = self.life.reach(what.to_owned()).await;
            sleep(Duration::from_millis(20)).await;
            let answer = work.await;
            self.life.pass(point, Side::After).await;
            answer
        }
        .boxed()
    }
}

impl Provider for Called {
    fn name(&self) -> &'static str {
        NAME
    }

    fn create<'a>(&'a self, request: &'a Request) -> Answering<'a, Seen> {
        self.call("create", self.cloud.create(request, self.life.number, &*self.stands))
    }

    fn observe<'a>(&'a self, machine: &'a Handle) -> Answering<'a, Found> {
        self.call("observe", async { self.cloud.about(machine, |_, _| {}) })
    }

    fn stop<'a>(&'a self, machine: &'a Handle) -> Answering<'a, Found> {
        self.call("stop", async { self.cloud.turn(machine, State::Stopped) })
    }

    fn start<'a>(&'a self, machine: &'a Handle) -> Answering<'a, Found> {
        self.call("start", async { self.cloud.turn(machine, State::Running) })
    }

    fn delete<'a>(&'a self, machine: &'a Handle) -> Answering<'a, Found> {
        self.call("delete", async { self.cloud.delete(machine) })
    }

    fn list_owned(&self) -> Answering<'_, Vec<Seen>> {
        self.call("list", async { self.cloud.list() })
    }
}
