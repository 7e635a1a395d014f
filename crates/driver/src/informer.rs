//! One list and watch per kind, shared by all reconcilers.

use crate::Options;
use crate::cache::Cache;
use crate::controller::{News, Wake};
use crate::looks::Looks;
use crate::requests::{Part, RequestError, Requests};
use crate::source::{self, Events, Held, Source, Told};
use api::error_chain;
use api::object::{self, Gvk, Key};
use futures::{FutureExt, StreamExt};
use objects::packed::Packed;
use reconcile::queue::BACKOFF_MAX;
use reconcile::wakes::{is_tracked, states};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Between a failed list or watch and the next attempt; each further failure in a row doubles it.
const RETRY: Duration = Duration::from_millis(250);
/// The longest time between two attempts, and between two looks for a kind that is not served.
const WAIT_MAX: Duration = Duration::from_secs(5);

/// Objects of a list from the server in this process that are looked at together.
const TOGETHER: usize = 64;

/// The kinds that cannot be listed or watched, each with the reason.
#[derive(Default)]
pub(crate) struct Troubles(Mutex<BTreeMap<Gvk, (String, Instant)>>);

impl Troubles {
    pub(crate) fn now(&self) -> BTreeMap<Gvk, String> {
        let troubles = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        troubles.iter().map(|(gvk, (trouble, _))| (gvk.clone(), trouble.clone())).collect()
    }

    /// For how long each of them has lasted.
    pub(crate) fn ages(&self) -> BTreeMap<Gvk, Duration> {
        let troubles = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        troubles.iter().map(|(gvk, (_, since))| (gvk.clone(), since.elapsed())).collect()
    }

    /// Notes what is wrong with a kind; true where that is news.
    fn note(&self, gvk: &Gvk, trouble: String) -> bool {
        let mut troubles = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (_, since) = troubles.get(gvk).cloned().unwrap_or_else(|| (String::new(), Instant::now()));
        troubles.insert(gvk.clone(), (trouble.clone(), since)).is_none_or(|(old, _)| old != trouble)
    }

    fn end(&self, gvk: &Gvk) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(gvk);
    }
}

/// Says when a kind has been listed once.
struct Listed {
    sender: watch::Sender<bool>,
    /// The controllers wait for it.
    at_start: bool,
}

impl Listed {
    /// Whether the controllers take their first look after this list.
    fn is_awaited(&self) -> bool {
        self.at_start && !*self.sender.borrow()
    }

    fn done(&self) {
        self.sender.send_replace(true);
    }
}

/// The informers of a driver.
pub(crate) struct Informers {
    shared: Arc<Shared>,
    tasks: tokio::sync::Mutex<JoinSet<()>>,
}

struct Shared {
    requests: Arc<Requests>,
    cache: Arc<Cache>,
    controllers: Vec<Arc<dyn Wake>>,
    options: Options,
    troubles: Arc<Troubles>,
    stop: CancellationToken,
    running: Mutex<BTreeMap<Gvk, CancellationToken>>,
    /// How often a CRD changed: each change is a reason to ask again what is served. Counted, so that a change that comes
    /// while somebody asks is not lost on them.
    definitions: watch::Sender<u64>,
    looks: Arc<Looks>,
}

fn crds() -> Gvk {
    Gvk::new("apiextensions.k8s.io", "v1", "CustomResourceDefinition")
}

impl Informers {
    pub(crate) fn new(
        requests: Arc<Requests>,
        cache: Arc<Cache>,
        controllers: Vec<Arc<dyn Wake>>,
        options: Options,
        troubles: Arc<Troubles>,
        stop: CancellationToken,
        looks: Arc<Looks>,
    ) -> Self {
        let shared = Shared {
            requests,
            cache,
            controllers,
            options,
            troubles,
            stop,
            running: Mutex::default(),
            definitions: watch::Sender::new(0),
            looks,
        };
        Self { shared: Arc::new(shared), tasks: tokio::sync::Mutex::new(JoinSet::new()) }
    }

    /// Starts an informer for each kind that a reconciler names, and with `every` for all kinds served, now and later.
    /// Returns true once all have listed, false when stopped before.
    pub(crate) async fn start(&self, every: bool) -> bool {
        let definitions = self.shared.definitions.subscribe();
        let served = loop {
            match self.shared.requests.discover().await {
                Ok(served) => break served,
                Err(error) => {
                    tracing::warn!(request = "GET /apis", error = %error_chain(&error), "cannot ask what is served; trying again")
                }
            }
            tokio::select! {
                () = tokio::time::sleep(RETRY) => {}
                () = self.shared.stop.cancelled() => return false,
            }
        };
        let mut wanted: BTreeSet<Gvk> = self.shared.controllers.iter().flat_map(|c| c.kinds()).collect();
        if every {
            wanted.insert(crds());
            wanted.extend(trackable(&served));
        }
        let mut listed = Vec::new();
        {
            let mut tasks = self.tasks.lock().await;
            for gvk in wanted {
                listed.extend(self.shared.spawn(gvk, true, &mut tasks));
            }
            if every {
                // subscribed before the discovery above could be out of date
                tasks.spawn(self.shared.clone().follow_discovery(definitions));
            }
        }
        for mut listed in listed {
            tokio::select! {
                result = listed.wait_for(|done| *done) => if result.is_err() { return false },
                () = self.shared.stop.cancelled() => return false,
            }
        }
        true
    }

    pub(crate) async fn shutdown(&self) {
        self.tasks.lock().await.shutdown().await;
    }
}

/// Wakes whom a change concerns. `object` is the tree of `held`.
fn wake_all(concerned: &[&Arc<dyn Wake>], gvk: &Gvk, old: Option<&Held>, held: &Held, object: &Value) {
    // most of the time the texts tell that the old tree is not needed
    let old = old.filter(|old| old.may_concern_others(held)).map(Held::open);
    states(old.as_deref(), object).for_each(|state| wake(concerned, gvk, state, News::Changed));
}

fn wake(concerned: &[&Arc<dyn Wake>], gvk: &Gvk, object: &Value, news: News) {
    for controller in concerned {
        controller.wake(gvk, object, news);
    }
}

/// What a reconciler keyed by every kind follows: each kind once, though a group may serve it in several versions or (as
/// events are) in two groups.
fn trackable(served: &BTreeMap<Gvk, crate::requests::Served>) -> Vec<Gvk> {
    let mut seen = BTreeSet::new();
    served
        .iter()
        .filter(|(gvk, served)| served.watchable && is_tracked(gvk))
        .filter(|(gvk, _)| seen.insert((gvk.group.clone(), gvk.kind.clone())))
        .map(|(gvk, _)| gvk.clone())
        .collect()
}

impl Shared {
    /// Starts an informer, unless there is one. `at_start`: the controllers wait until it has listed.
    fn spawn(self: &Arc<Self>, gvk: Gvk, at_start: bool, tasks: &mut JoinSet<()>) -> Option<watch::Receiver<bool>> {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        if running.contains_key(&gvk) {
            return None;
        }
        let stop = self.stop.child_token();
        running.insert(gvk.clone(), stop.clone());
        let (sender, listed) = watch::channel(false);
        let done = Listed { sender, at_start };
        let shared = self.clone();
        tasks.spawn(async move {
            let follow = || AssertUnwindSafe(shared.follow(&gvk, &stop, &done)).catch_unwind();
            while follow().await.is_err() {
                tracing::error!(kind = %gvk, "bug: following this kind panicked; listing again");
                tokio::time::sleep(RETRY).await;
            }
        });
        Some(listed)
    }

    /// Lists and watches one kind until stopped.
    async fn follow(&self, gvk: &Gvk, stop: &CancellationToken, listed: &Listed) {
        let mut definitions = self.definitions.subscribe();
        let mut wait = RETRY;
        while !stop.is_cancelled() {
            definitions.mark_unchanged();
            let began = Instant::now();
            let outcome = tokio::select! {
                outcome = self.list_and_watch(gvk, listed) => outcome,
                () = stop.cancelled() => return,
            };
            if began.elapsed() > WAIT_MAX {
                wait = RETRY;
            }
            let mut pause = wait;
            match outcome {
                // a server whose history is short says so now and then, not all the time
                Ok(()) if began.elapsed() > RETRY => continue,
                Ok(()) => {}
                Err(error @ RequestError::UnknownKind(_)) => {
                    // an optional kind (PodGroup, say): its CRD may come later
                    listed.done();
                    self.troubles.note(gvk, error_chain(&error));
                }
                Err(error) => {
                    let refused = matches!(error.code(), 401 | 403);
                    pause = error.retry_after().map_or(pause, |asked| asked.max(pause).min(BACKOFF_MAX));
                    let error = error_chain(&error);
                    if self.troubles.note(gvk, error.clone()) && refused {
                        tracing::warn!(kind = %gvk, error, "may not list or watch this kind; trying again until I may");
                    } else {
                        tracing::debug!(kind = %gvk, error, "watch failed; listing again");
                    }
                }
            }
            let is_served = self.requests.served(gvk).is_some();
            wait = wait.saturating_mul(2).min(WAIT_MAX);
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                // a server may tell of a definition a little before it serves it: soon again, then rarer
                _ = definitions.changed(), if !is_served => wait = RETRY,
                () = stop.cancelled() => return,
            }
        }
    }

    /// One list, then watches from where the last ended. Ok: the watch must begin anew from a list.
    async fn list_and_watch(&self, gvk: &Gvk, listed: &Listed) -> Result<(), RequestError> {
        let concerned = self.concerned(gvk);
        let news = if listed.is_awaited() { News::AtStart } else { News::Listed };
        // what was there before, and is not in the list, is gone
        let mut there = self.cache.has(gvk).then(BTreeSet::new);
        let mut take_in = |items: &[(Held, Arc<Value>)]| {
            there.iter_mut().for_each(|there| there.extend(items.iter().map(|(_, item)| Key::of(item))));
            let past = self.cache.list_part(gvk, items);
            // states of objects that have changed since the last list
            past.iter().for_each(|object| wake(&concerned, gvk, object, News::Changed));
        };
        // those of which nobody has heard yet
        let mut quiet = Vec::new();
        let revision = match self.source().and_then(|source| source.list(gvk)) {
            Some((items, revision)) => {
                // not all trees at once
                for part in items.chunks(TOGETHER) {
                    let part: Vec<_> = part.iter().map(|item| (Held::Packed(item.clone()), item.identity())).collect();
                    take_in(&part);
                    // a list of a hundred thousand takes seconds, in which others want their turn
                    tokio::task::yield_now().await;
                }
                quiet = items;
                revision.to_string()
            }
            None => {
                let mut part = Part::default();
                loop {
                    part = self.requests.list(gvk, &part.rest).await?;
                    let mut items = std::mem::take(&mut part.items);
                    items.iter_mut().for_each(|item| self.slim(gvk, item));
                    let items: Vec<_> = items.into_iter().map(Arc::new).collect();
                    take_in(&items.iter().map(|item| (Held::Tree(item.clone()), item.clone())).collect::<Vec<_>>());
                    items.iter().for_each(|item| wake(&concerned, gvk, item, news));
                    if part.rest.is_empty() {
                        break part.revision;
                    }
                }
            }
        };
        let past = self.cache.list_end(gvk, there.as_ref(), revision.parse().unwrap_or(0));
        drop(there);
        past.iter().for_each(|object| wake(&concerned, gvk, object, News::Changed));
        listed.done();
        // once the watch has ended, changes are waiting for the next list
        let hurry = CancellationToken::new();
        let watching = async {
            let _ends = hurry.drop_guard_ref();
            self.watch(gvk, revision, &concerned).await
        };
        let (ended, ()) = tokio::join!(watching, self.tell_of(gvk, quiet, &concerned, news, &hurry));
        ended
    }

    /// Wakes whom listed objects concern: a few at a time, and beside what changes meanwhile; in a hurry without a permit.
    async fn tell_of(
        &self,
        gvk: &Gvk,
        items: Vec<Arc<Packed>>,
        concerned: &[&Arc<dyn Wake>],
        news: News,
        hurry: &CancellationToken,
    ) {
        for part in items.chunks(TOGETHER) {
            let permit = tokio::select! {
                permit = self.looks.permit() => permit,
                () = hurry.cancelled() => None,
            };
            part.iter().for_each(|item| wake(concerned, gvk, &item.lean(), news));
            drop(permit);
            tokio::task::yield_now().await;
        }
    }

    /// Watches from a revision on. Ok: the watch must begin anew from a list.
    async fn watch(&self, gvk: &Gvk, mut revision: String, concerned: &[&Arc<dyn Wake>]) -> Result<(), RequestError> {
        loop {
            let began = Instant::now();
            let Some(mut events) = self.events(gvk, &revision).await? else { return Ok(()) };
            self.troubles.end(gvk);
            while let Some(event) = events.next().await {
                match event? {
                    Told::Is(held) => {
                        let object = held.open();
                        revision = object::resource_version(&object).to_owned();
                        let old = self.cache.tell(gvk, &held, &object);
                        if let Some(witness) = &self.options.witness {
                            witness(gvk, &|| old.as_ref().map(Held::open), &object);
                        }
                        wake_all(concerned, gvk, old.as_ref(), &held, &object);
                    }
                    Told::Was(held) => {
                        let object = held.open();
                        revision = object::resource_version(&object).to_owned();
                        let old = self.cache.tell_deleted(gvk, &object);
                        wake_all(concerned, gvk, old.as_ref(), &held, &object);
                    }
                    Told::Nothing(until) => revision = until,
                    Told::Forgotten => return Ok(()),
                }
                if *gvk == crds() {
                    self.definitions.send_modify(|changes| *changes += 1);
                }
            }
            // a server that ends watches as soon as they begin is not asked all the time
            tokio::time::sleep(RETRY.saturating_sub(began.elapsed())).await;
        }
    }

    /// The server in this process, where everything is to be had from it as it is.
    fn source(&self) -> Option<&Arc<dyn Source>> {
        let Options { source, slim, packs, selects, namespace, .. } = &self.options;
        source.as_ref().filter(|_| slim.is_none() && packs.is_none() && selects.is_none() && namespace.is_none())
    }

    /// What happens to a kind after a revision; `None` where it has to be listed again.
    async fn events<'a>(&'a self, gvk: &'a Gvk, revision: &str) -> Result<Option<Events<'a>>, RequestError> {
        if let (Some(source), Ok(revision)) = (self.source(), revision.parse())
            && source.has(gvk)
        {
            return Ok(source.watch(gvk, revision).map(|told| told.map(Ok).boxed()));
        }
        let events = self.requests.watch(gvk, revision).await?;
        Ok(Some(events.map(|event| Ok(source::read(event?, |object| self.slim(gvk, object)))).boxed()))
    }

    fn slim(&self, gvk: &Gvk, object: &mut Value) {
        if let Some(slim) = self.options.slim {
            slim(gvk, object);
        }
    }

    /// The controllers that changes of a kind may concern.
    fn concerned(&self, gvk: &Gvk) -> Vec<&Arc<dyn Wake>> {
        let looks =
            |controller: &&Arc<dyn Wake>| (controller.every() && is_tracked(gvk)) || controller.kinds().contains(gvk);
        self.controllers.iter().filter(looks).collect()
    }

    /// Keeps the set of informers in step with the CRDs.
    async fn follow_discovery(self: Arc<Self>, mut definitions: watch::Receiver<u64>) {
        let mut tasks = JoinSet::new();
        let mut again = WAIT_MAX;
        loop {
            tokio::select! {
                // never an error: the sender is ours
                _ = definitions.changed() => again = RETRY,
                // a server may tell of a definition a little before it serves it
                () = tokio::time::sleep(again), if again < WAIT_MAX => again = again.saturating_mul(2),
                () = self.stop.cancelled() => break,
            }
            let Ok(served) = self.requests.discover().await else { continue };
            let wanted: BTreeSet<Gvk> = trackable(&served).into_iter().collect();
            let named: BTreeSet<Gvk> = self.controllers.iter().flat_map(|c| c.kinds()).collect();
            let stale: Vec<(Gvk, CancellationToken)> = {
                let running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
                running
                    .iter()
                    .filter(|(gvk, _)| !served.contains_key(gvk) && !named.contains(gvk))
                    .map(|(gvk, stop)| (gvk.clone(), stop.clone()))
                    .collect()
            };
            for (gvk, stop) in stale {
                stop.cancel();
                self.cache.drop_kind(&gvk);
                self.running.lock().unwrap_or_else(PoisonError::into_inner).remove(&gvk);
            }
            for gvk in wanted {
                self.spawn(gvk, false, &mut tasks);
            }
        }
        tasks.shutdown().await;
    }
}
