//! The outside of the provider `local`: its folders, and agents that survive a control plane.

use crate::cases::{Outside, Trouble};
use api::sky::{Candidate, providers};
use futures::FutureExt;
use futures::future::BoxFuture;
use infra::Provider;
use infra::local::{Agents, Host, Local, Machines};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

#[derive(Default)]
struct State {
    calls: usize,
    trouble: Option<(Trouble, usize)>,
    is_stuck: bool,
    running: BTreeSet<PathBuf>,
}

#[derive(Clone, Default)]
struct Fake(Arc<Mutex<State>>);

impl Fake {
    fn with<T>(&self, work: impl FnOnce(&mut State) -> T) -> T {
        work(&mut self.0.lock().unwrap())
    }

    /// Makes a call with its effect, and with the planned trouble.
    async fn call(&self, effect: impl FnOnce(&mut State)) -> std::io::Result<()> {
        let met = self.with(|state| {
            state.calls += 1;
            let met = state.trouble.filter(|(_, at)| *at == state.calls).map(|(trouble, _)| trouble);
            if !matches!(met, Some(Trouble::Fails | Trouble::KilledBefore)) {
                effect(state);
            }
            state.is_stuck |= matches!(met, Some(Trouble::KilledBefore | Trouble::KilledAfter));
            met
        });
        match met {
            None => Ok(()),
            Some(Trouble::Fails | Trouble::LosesAnswer) => Err(std::io::Error::other("no answer")),
            Some(Trouble::KilledBefore | Trouble::KilledAfter) => std::future::pending().await,
        }
    }
}

impl Agents for Fake {
    fn start<'a>(&'a self, machine: &'a Local) -> BoxFuture<'a, std::io::Result<()>> {
        self.call(|state| {
            state.running.insert(machine.folder.clone());
        })
        .boxed()
    }

    fn is_busy(&self, _: &Path) -> bool {
        false
    }

    fn stop<'a>(&'a self, folder: &'a Path) -> BoxFuture<'a, ()> {
        self.call(|state| {
            state.running.remove(folder);
        })
        .map(drop)
        .boxed()
    }

    fn gpus_in_use(&self) -> BTreeSet<u32> {
        BTreeSet::new()
    }

    fn keep_gpus(&self, _: BTreeSet<u32>) -> bool {
        true
    }
}

pub struct Here {
    root: tempfile::TempDir,
    fake: Fake,
}

impl Here {
    pub fn new() -> Self {
        Self { root: tempfile::tempdir().unwrap(), fake: Fake::default() }
    }

    fn folders(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(self.root.path().join("machines")).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).collect()
    }
}

impl Outside for Here {
    fn provider(&self) -> Arc<dyn Provider> {
        let host = Host { cpus: 4.0, memory: 8.0, gpus: Vec::new() };
        Arc::new(Machines::new(self.root.path().join("machines"), host, Arc::new(self.fake.clone())))
    }

    fn candidate(&self) -> Candidate {
        Candidate { provider: providers::LOCAL.into(), ..Candidate::default() }
    }

    fn machines(&self) -> usize {
        self.folders().len()
    }

    fn trouble(&self, trouble: Option<(Trouble, usize)>) {
        self.fake.with(|state| (state.calls, state.trouble, state.is_stuck) = (0, trouble, false));
    }

    fn is_stuck(&self) -> bool {
        self.fake.with(|state| state.is_stuck)
    }

    fn end(&self) -> &'static str {
        self.folders().iter().for_each(|folder| std::fs::remove_dir_all(folder).unwrap());
        "is gone"
    }

    fn cut(&self, _: bool) -> bool {
        false
    }
}
