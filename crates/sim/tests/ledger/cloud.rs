//! A provider of machines on which things go wrong: lost answers, machines that come late, twice or under the name of an earlier one,
//! lists that lag, deletions that take their time.

use crate::life::{Life, Side};
use futures::FutureExt;
use infra::{Answering, Provider};
use managed::provider::{Failure, Fate, Found, Handle, Request, Seen, State};
use sim::dice::Dice;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// It stands in for this computer, on which a task may run without any settings.
pub const NAME: &str = api::sky::providers::LOCAL;
/// For how long things go wrong, once something is tried.
const STORM: Duration = Duration::from_secs(90);

/// What is done wrong on purpose: each must fail a run, or the runs prove nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// The machine is asked for before its object is written.
    MachineBeforeObject,
    /// The object goes with the first call to delete, whatever the provider says.
    ReleasedUnheard,
    /// A control plane that starts anew asks under tokens of its own.
    TokensOfTheProcess,
    /// The object goes before the provider is asked to end the machine.
    ObjectBeforeMachine,
    /// Nobody compares machines with the ledger.
    NoSweep,
    /// Of two machines with one token the sweep sees one.
    TwinsLive,
    /// A machine that is not listed is said to have ended.
    AbsenceIsLoss,
    /// A launch does not look whether its job is there.
    JobUnseen,
}

#[derive(Clone, Debug)]
struct Made {
    seen: Seen,
    /// From when on lists and lookups show it.
    visible: Instant,
    /// When it is gone, where it is being ended.
    gone: Option<Instant>,
    /// An object has noted its name. One that comes late, under the same token and a name that is free again, is another machine.
    is_noted: bool,
}

/// The machines, and what happened to them.
pub struct Cloud {
    state: Mutex<Inside>,
    pub bug: Option<Bug>,
}

struct Inside {
    chance: Dice,
    calm: Option<Instant>,
    /// There is always room: a cluster with one place waits for room by the wall's clock, which does not move here.
    has_room: bool,
    machines: Vec<Made>,
    /// How many were ever made.
    made: usize,
    /// Tokens of machines that will come.
    late: Vec<String>,
    /// Ids that objects have noted, by token.
    noted: BTreeMap<String, String>,
    broken: Option<String>,
}

/// Whether an object stands for a token.
pub type Stands = dyn Fn(&str) -> bool + Send + Sync;

/// The token of an object in what was asked under: [`Bug::TokensOfTheProcess`] puts a number behind it.
pub fn object_of(token: &str) -> &str {
    token.split('#').next().unwrap_or_default()
}

/// A machine as a control plane sees it.
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
                    // the name is enough: a machine can be seen by a caller that knows its name
                    Some(id) => made.seen.id == *id,
                    None => made.visible <= now,
                }
        })
    }

    /// Whether a machine of this token will come, or will be seen.
    fn may_come(&self, token: &str) -> bool {
        self.late.iter().any(|late| late == token) || self.machines.iter().any(|made| made.seen.token == token)
    }

    fn appear(&mut self, token: &str, node: &str) -> Seen {
        // the lowest number that is free: names come again, as those of a pool's hosts do
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

    /// From now on things go wrong for a while.
    pub fn storm(&self) {
        self.inside().calm = Some(Instant::now() + STORM);
    }

    /// From now on there is always room.
    pub fn has_room(&self) {
        self.inside().has_room = true;
    }

    pub fn made(&self) -> usize {
        self.inside().made
    }

    pub fn broken(&self) -> Option<String> {
        self.inside().broken.clone()
    }

    /// The machines that there are; `None` while some will still come.
    pub fn machines(&self) -> Option<Vec<Seen>> {
        let mut inside = self.inside();
        inside.clear();
        inside.late.is_empty().then(|| inside.machines.iter().map(|made| made.seen.clone()).collect())
    }

    /// What holds at every moment: a machine whose name an object has noted has an object. `objects` are tokens and noted ids.
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

    /// The token that is asked under; `life` is the number of the control plane.
    fn token(&self, token: &str, life: u32) -> String {
        match self.bug {
            Some(Bug::TokensOfTheProcess) => format!("{token}#{life}"),
            _ => token.to_owned(),
        }
    }

    /// A machine is made while no object says so.
    pub fn early(&self) {
        let mut inside = self.inside();
        let made = inside.appear("early", "early");
        // the sweep ends it within a minute: only at once it is seen
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
        // tokens of a process are known by their beginning
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
    /// A call is a moment before and a moment behind which the control plane may be killed; it takes its time.
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
