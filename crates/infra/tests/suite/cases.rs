//! The duties of every provider of machines, even if its outside fails.

use crate::faults::Faulty;
use infra::{Failure, Found, Handle, Provider, Request, Seen, State};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};

/// How a call to the outside fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// The call fails without an effect.
    Fails,
    /// The call has its effect, but its answer is lost.
    LosesAnswer,
    /// The control plane is killed before the call.
    KilledBefore,
    /// The control plane is killed after the call, before it gets the answer.
    KilledAfter,
}

pub const TROUBLES: [Trouble; 4] = [Trouble::Fails, Trouble::LosesAnswer, Trouble::KilledBefore, Trouble::KilledAfter];

/// The outside of a provider: it stays when a control plane is killed.
pub trait Outside {
    /// The provider of a control plane that has just started.
    fn provider(&self) -> Arc<dyn Provider>;

    fn candidate(&self) -> api::sky::Candidate;

    /// Number of machines outside.
    fn machines(&self) -> usize;

    /// Plans a trouble, and for which call from now on.
    fn trouble(&self, trouble: Option<(Trouble, usize)>);

    /// Whether the call at which the control plane must be killed has been reached.
    fn is_stuck(&self) -> bool;

    /// Ends the only machine from outside; returns words that the reason must contain.
    fn end(&self) -> &'static str;

    /// Whether a stopped machine keeps its disk. If it keeps nothing, a machine that was ended outside can be stopped, and started again.
    fn keeps_disk(&self) -> bool {
        true
    }

    /// Makes the outside unreachable, or reachable again. Returns whether that is possible.
    fn cut(&self, is_cut: bool) -> bool;
}

/// One control plane. Dropping it kills it, with all its tasks.
struct Life<'a> {
    world: &'a dyn Outside,
    runtime: Option<Runtime>,
    provider: Arc<dyn Provider>,
}

impl Drop for Life<'_> {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_timeout(Duration::from_secs(5));
        }
    }
}

enum Call<'a> {
    Create(&'a Request),
    Observe(&'a Handle),
    Stop(&'a Handle),
    Start(&'a Handle),
    Delete(&'a Handle),
}

/// An answer; `None`: the control plane was killed first.
type Answer = Option<Result<Found, Failure>>;

impl<'a> Life<'a> {
    fn new(world: &'a dyn Outside, fault: Option<crate::faults::Fault>) -> Self {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let provider = runtime.block_on(async { world.provider() });
        let provider = match fault {
            None => provider,
            Some(fault) => Arc::new(Faulty::new(provider, fault)) as Arc<dyn Provider>,
        };
        Self { world, runtime: Some(runtime), provider }
    }

    fn block<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime.as_ref().unwrap().block_on(work)
    }

    fn call(&self, call: &Call<'_>) -> Answer {
        let provider = &*self.provider;
        let answer = async {
            match call {
                Call::Create(request) => provider.create(request).await.map(Found::There),
                Call::Observe(handle) => provider.observe(handle).await,
                Call::Stop(handle) => provider.stop(handle).await,
                Call::Start(handle) => provider.start(handle).await,
                Call::Delete(handle) => provider.delete(handle).await,
            }
        };
        let killed = async {
            while !self.world.is_stuck() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        self.block(async {
            tokio::select! {
                answer = answer => Some(answer),
                () = killed => None,
            }
        })
    }

    fn list(&self) -> Result<Vec<Seen>, String> {
        self.block(self.provider.list_owned()).map_err(|failure| failure.what)
    }
}

/// The suite; `make` makes the worlds.
pub struct Suite<'a> {
    pub make: &'a dyn Fn() -> Box<dyn Outside>,
    pub fault: Option<crate::faults::Fault>,
    /// Each trouble is tried at one in `step` calls, and another trouble at the next call.
    pub step: usize,
}

const TOKEN: &str = "11112222-3333-4444-5555-666677778888";

fn request(world: &dyn Outside) -> Request {
    let (labels, taints) = (BTreeMap::new(), BTreeMap::new());
    Request { token: TOKEN.into(), node: "dev-0-0".into(), candidate: world.candidate(), labels, taints }
}

fn handle(id: Option<&str>, generation: i64) -> Handle {
    Handle { token: TOKEN.into(), id: id.map(str::to_owned), generation }
}

fn same<T: PartialEq + std::fmt::Debug>(what: &str, is: T, wanted: T) -> Result<(), String> {
    if is == wanted { Ok(()) } else { Err(format!("{what}: {is:?}, wanted: {wanted:?}")) }
}

fn state(what: &str, answer: Answer) -> Result<(String, State), String> {
    match answer {
        Some(Ok(Found::There(seen))) => Ok((seen.id, seen.state)),
        other => Err(format!("{what}: {other:?}")),
    }
}

fn reason(what: &str, answer: Answer) -> Result<String, String> {
    match answer {
        Some(Ok(Found::Ended(ended))) if !ended.why.is_empty() => Ok(ended.why),
        other => Err(format!("{what}: {other:?}, wanted: an end with its reason")),
    }
}

impl Suite<'_> {
    fn life<'a>(&self, world: &'a dyn Outside) -> Life<'a> {
        Life::new(world, self.fault)
    }

    /// Runs all cases; the first that fails says why.
    pub fn run(&self) -> Result<(), String> {
        self.created_twice()?;
        self.stopped_and_started()?;
        self.late_wishes()?;
        self.out_of_reach()?;
        self.ended_outside()?;
        self.deleted_when_gone()?;
        for trouble in TROUBLES {
            self.troubled(trouble)?;
        }
        Ok(())
    }

    fn created_twice(&self) -> Result<(), String> {
        let world = (self.make)();
        let (life, request) = (self.life(&*world), request(&*world));
        let first = state("create", life.call(&Call::Create(&request)))?;
        same("create again", state("create again", life.call(&Call::Create(&request)))?, first.clone())?;
        drop(life);
        let life = self.life(&*world);
        same("create after a restart", state("create", life.call(&Call::Create(&request)))?.0, first.0.clone())?;
        same("machines", world.machines(), 1)?;
        let listed: Vec<(String, String)> = life.list()?.into_iter().map(|seen| (seen.token, seen.id)).collect();
        same("list", listed, vec![(TOKEN.to_owned(), first.0)])?;
        self.gone(&life, &*world)
    }

    /// Ends the machine, and checks that nothing of it is left.
    fn gone(&self, life: &Life<'_>, world: &dyn Outside) -> Result<(), String> {
        let mut says = String::new();
        for _ in 0..50 {
            match life.call(&Call::Delete(&handle(None, 0))) {
                Some(Ok(Found::Ended(_))) => {
                    same("machines after the end", world.machines(), 0)?;
                    return same("list after the end", life.list()?.len(), 0);
                }
                other => says = format!("{other:?}"),
            }
        }
        Err(format!("delete does not come to an end: {says}"))
    }

    fn stopped_and_started(&self) -> Result<(), String> {
        let world = (self.make)();
        let (life, request) = (self.life(&*world), request(&*world));
        let id = state("create", life.call(&Call::Create(&request)))?.0;
        same("stop", state("stop", life.call(&Call::Stop(&handle(Some(&id), 1))))?.1, State::Stopped)?;
        same("stopped", state("observe", life.call(&Call::Observe(&handle(Some(&id), 1))))?.1, State::Stopped)?;
        drop(life);
        let life = self.life(&*world);
        same("stopped still", state("observe", life.call(&Call::Observe(&handle(Some(&id), 1))))?.1, State::Stopped)?;
        same("start", state("start", life.call(&Call::Start(&handle(Some(&id), 2))))?.1, State::Running)?;
        same("started", state("observe", life.call(&Call::Observe(&handle(Some(&id), 2))))?.1, State::Running)?;
        self.gone(&life, &*world)
    }

    fn late_wishes(&self) -> Result<(), String> {
        let world = (self.make)();
        let (life, request) = (self.life(&*world), request(&*world));
        let id = state("create", life.call(&Call::Create(&request)))?.0;
        state("stop", life.call(&Call::Stop(&handle(Some(&id), 3))))?;
        // from a control plane that was killed before the stop
        let _late = life.call(&Call::Start(&handle(Some(&id), 2)));
        let after = state("observe", life.call(&Call::Observe(&handle(Some(&id), 3))))?;
        same("after a late start", after.1, State::Stopped)?;
        self.gone(&life, &*world)
    }

    fn out_of_reach(&self) -> Result<(), String> {
        let world = (self.make)();
        let (life, request) = (self.life(&*world), request(&*world));
        let id = state("create", life.call(&Call::Create(&request)))?.0;
        drop(life);
        if !world.cut(true) {
            return Ok(());
        }
        let life = self.life(&*world);
        for call in [Call::Observe(&handle(Some(&id), 0)), Call::Delete(&handle(Some(&id), 0))] {
            if let Some(Ok(Found::Ended(ended))) = life.call(&call) {
                return Err(format!("what is out of reach has ended: {}", ended.why));
            }
        }
        world.cut(false);
        self.gone(&life, &*world)
    }

    fn ended_outside(&self) -> Result<(), String> {
        let world = (self.make)();
        let (life, request) = (self.life(&*world), request(&*world));
        let id = state("create", life.call(&Call::Create(&request)))?.0;
        let words = world.end();
        let why = reason("observe what was ended outside", life.call(&Call::Observe(&handle(Some(&id), 0))))?;
        if !why.contains(words) {
            return Err(format!("the reason {why:?} does not say {words:?}"));
        }
        let (stop, start) = (handle(Some(&id), 1), handle(Some(&id), 2));
        let (stopped, started) = (life.call(&Call::Stop(&stop)), life.call(&Call::Start(&start)));
        if world.keeps_disk() {
            reason("stop what was ended outside", stopped)?;
            reason("start what was ended outside", started)?;
        } else {
            same("stop what was ended outside", state("stop", stopped)?.1, State::Stopped)?;
            same("start what was ended outside", state("start", started)?.1, State::Running)?;
        }
        self.gone(&life, &*world)
    }

    fn deleted_when_gone(&self) -> Result<(), String> {
        let world = (self.make)();
        let (life, request) = (self.life(&*world), request(&*world));
        reason("delete what never was", life.call(&Call::Delete(&handle(None, 0))))?;
        let id = state("create", life.call(&Call::Create(&request)))?.0;
        self.gone(&life, &*world)?;
        for id in [None, Some(id.as_str())] {
            reason("delete the gone", life.call(&Call::Delete(&handle(id, 0))))?;
        }
        reason("observe the gone", life.call(&Call::Observe(&handle(Some(&id), 0)))).map(drop)
    }

    /// Tries one trouble at each call of each operation. Then the operation is repeated; after a kill, the next control plane repeats it.
    fn troubled(&self, trouble: Trouble) -> Result<(), String> {
        for operation in ["create", "stop", "start", "delete"] {
            for at in (1..40).filter(|at: &usize| (at + trouble as usize).is_multiple_of(self.step)) {
                let (is_over, says) = self.troubled_at(trouble, operation, at);
                says.map_err(|why| format!("{trouble:?} at call {at} of {operation}: {why}"))?;
                if is_over {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Whether the operation had fewer calls than that, and the fault that was found.
    fn troubled_at(&self, trouble: Trouble, operation: &str, at: usize) -> (bool, Result<(), String>) {
        let world = (self.make)();
        let mut life = self.life(&*world);
        let wanted = request(&*world);
        let (plain, one, two) = (handle(None, 0), handle(None, 1), handle(None, 2));
        let call = match operation {
            "create" => Call::Create(&wanted),
            "stop" => Call::Stop(&one),
            "start" => Call::Start(&two),
            _ => Call::Delete(&plain),
        };
        let prepared = match operation {
            "create" => Ok(()),
            "start" => state("create", life.call(&Call::Create(&wanted)))
                .and_then(|_| state("stop", life.call(&Call::Stop(&one))).map(drop)),
            _ => state("create", life.call(&Call::Create(&wanted))).map(drop),
        };
        if prepared.is_err() {
            return (true, prepared);
        }
        world.trouble(Some((trouble, at)));
        let mut answer = life.call(&call);
        let mut is_over = matches!(answer, Some(Ok(_)));
        world.trouble(None);
        for _ in 0..20 {
            match &answer {
                Some(Ok(_)) => break,
                Some(Err(_)) => {}
                None => {
                    is_over = false;
                    drop(life);
                    life = self.life(&*world);
                }
            }
            answer = life.call(&call);
        }
        let wanted = match operation {
            "create" | "start" => State::Running,
            "stop" => State::Stopped,
            _ => return (is_over, self.gone(&life, &*world)),
        };
        let there = usize::from(operation != "stop" || world.keeps_disk());
        let says = state(operation, answer)
            .and_then(|(_, state)| same(operation, state, wanted))
            .and_then(|()| same("machines", world.machines(), there))
            .and_then(|()| self.gone(&life, &*world));
        (is_over, says)
    }
}
