//! Follows the objects of one kind, and does what a pure step says about each.
//!
//! This is for work that leaves the API server: a machine is made, files are sent, a job is submitted somewhere. Such calls take minutes,
//! and their answers get lost. Controllers that only read and write objects are `reconcile`'s, and run in `driver`.
//!
//! # Expected flow
//! One [`Loop`] follows all objects of its watch. For an object that is new, has changed, was woken or whose time has come, it reads the
//! object anew, then [`Effects::look`], [`Effects::step`], [`Effects::call`] and [`Effects::note`] run in this order.
//!
//! # Guarantees
//! - An object is looked at by one task at a time. Its changes meanwhile lead to another look.
//! - An object that is deleted and created again is another object: the work about the old one delays nothing.
//! - A resting object costs an entry in a map, and no task.
//! - Work that is under way when the loop stops is dropped. The next loop looks at the object again.
//!
//! # What an implementer must ensure
//! - All that is to be remembered is in the object before `call` begins: a crash leads to the same step again.
//! - So each call can be made twice.

#![cfg_attr(test, allow(clippy::arithmetic_side_effects, reason = "a test that panics fails, as it should"))]

mod wakes;

use api::object::{Gvk, Key};
use futures::StreamExt;
use kube::api::{Api, DynamicObject};
use kube::core::{ApiResource, GroupVersionKind};
use kube::runtime::watcher;
use kube::{Client, ResourceExt};
use reconcile::Next;
use reconcile::queue::Lane;
use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use tokio_util::task::JoinMap;
use wakes::Id;
pub use wakes::Wakes;

/// How many objects a loop works on at the same time, unless [`Loop::at_once`] says otherwise.
const AT_ONCE: usize = 256;
/// The pause after a watch that broke.
const WATCH_RETRY: Duration = Duration::from_millis(500);

/// Why an object could not be looked at.
#[derive(Debug, thiserror::Error)]
pub enum Unseen {
    /// The API server could not be asked; it is asked again.
    #[error(transparent)]
    Api(#[from] kube::Error),
    /// The object cannot be read as what it says to be. It is left alone until it changes.
    #[error("{0}")]
    Unreadable(String),
}

impl From<serde_json::Error> for Unseen {
    fn from(error: serde_json::Error) -> Self {
        Self::Unreadable(error.to_string())
    }
}

/// What is done about the objects of one kind.
pub trait Effects: Send + Sync + 'static {
    /// What of an object leads to another look when it changes: not what the loop itself writes.
    type Mark: Clone + PartialEq + Send;
    /// What a step is worked out from.
    type Seen: Send + Sync;
    /// What is done.
    type Call: Send + Sync;
    /// What comes of it.
    type Answer: Send;

    /// See [`Effects::Mark`].
    fn mark(&self, object: &DynamicObject) -> Self::Mark;

    /// Reads what there is about an object, which the API server has just given.
    fn look(&self, object: DynamicObject) -> impl Future<Output = Result<Self::Seen, Unseen>> + Send;

    /// What to do next; `None`: nothing until something changes. It does nothing itself.
    fn step(&self, seen: &Self::Seen) -> Option<Self::Call>;

    /// Does it. What fails is an answer, too.
    fn call(&self, seen: &Self::Seen, call: &Self::Call) -> impl Future<Output = Self::Answer> + Send;

    /// Writes down what came of it, and says when to look again.
    fn note(
        &self,
        seen: &Self::Seen,
        call: &Self::Call,
        answer: Self::Answer,
    ) -> impl Future<Output = kube::Result<Next>> + Send;
}

/// Follows objects until it is stopped.
pub struct Loop<E: Effects> {
    effects: Arc<E>,
    client: Client,
    resource: ApiResource,
    watched: watcher::Config,
    wakes: Wakes<E::Mark>,
    at_once: usize,
}

impl<E: Effects> Loop<E> {
    /// A loop over the objects of a namespaced kind that `watched` selects.
    pub fn new(client: Client, kind: &Gvk, watched: watcher::Config, effects: E) -> Self {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(&kind.group, &kind.version, &kind.kind));
        Self { effects: Arc::new(effects), client, resource, watched, wakes: Wakes::default(), at_once: AT_ONCE }
    }

    /// Works on so many objects at the same time; the others wait for their turn.
    #[must_use]
    pub fn at_once(self, at_once: usize) -> Self {
        Self { at_once, ..self }
    }

    /// What makes this loop look at objects from outside.
    pub fn wakes(&self) -> Wakes<E::Mark> {
        self.wakes.clone()
    }

    /// Works until `stop`.
    pub async fn run(self, stop: CancellationToken) {
        let all: Api<DynamicObject> = Api::all_with(self.client.clone(), &self.resource);
        let events = watcher(all, self.watched.clone()).then(|event| async {
            if let Err(error) = &event {
                tracing::warn!(%error, kind = self.resource.kind, "watching objects; trying again");
                tokio::time::sleep(WATCH_RETRY).await;
            }
            event
        });
        let mut events = pin!(events.boxed());
        // the objects of a list that is under way
        let mut listed = BTreeSet::new();
        let mut looks: JoinMap<Id, Option<Next>> = JoinMap::new();
        loop {
            while looks.len() < self.at_once
                && let Some(id) = self.wakes.pop()
            {
                looks.spawn(id.clone(), look(self.effects.clone(), self.client.clone(), self.resource.clone(), id));
            }
            let is_full = looks.len() >= self.at_once;
            tokio::select! {
                () = stop.cancelled() => break,
                event = events.next() => match event {
                    Some(Ok(event)) => self.take(event, &mut listed),
                    Some(Err(_)) => {}
                    None => break,
                },
                Some((id, done)) = looks.join_next(), if !looks.is_empty() => {
                    if let Err(error) = &done {
                        tracing::error!(%error, kind = self.resource.kind, object = %id.key, "looking at an object failed by a bug");
                    }
                    self.wakes.settle(&id, done.unwrap_or(Some(Next::Backoff)));
                }
                () = self.wakes.wait(), if !is_full => {}
            }
        }
        looks.shutdown().await;
    }

    fn take(&self, event: watcher::Event<DynamicObject>, listed: &mut BTreeSet<Key>) {
        match event {
            watcher::Event::Init => listed.clear(),
            watcher::Event::InitApply(object) => {
                listed.insert(key_of(&object));
                self.follow(&object, Lane::Listed);
            }
            // whoever is not listed has gone meanwhile
            watcher::Event::InitDone => self.wakes.wake_where(|key, _| !listed.contains(key)),
            watcher::Event::Apply(object) => self.follow(&object, Lane::Changed),
            watcher::Event::Delete(object) => self.wakes.forget(&key_of(&object), &object.uid().unwrap_or_default()),
        }
    }

    fn follow(&self, object: &DynamicObject, lane: Lane) {
        self.wakes.follow(key_of(object), object.uid().unwrap_or_default(), self.effects.mark(object), lane);
    }
}

fn key_of(object: &DynamicObject) -> Key {
    Key { namespace: object.namespace().unwrap_or_default(), name: object.name_any() }
}

/// One look at an object. `None`: it is gone.
async fn look<E: Effects>(effects: Arc<E>, client: Client, resource: ApiResource, id: Id) -> Option<Next> {
    let api: Api<DynamicObject> = Api::namespaced_with(client, &id.key.namespace, &resource);
    let again = |error: &kube::Error| {
        tracing::warn!(%error, kind = resource.kind, object = %id.key, "cannot go on with an object; trying again");
        Some(Next::Backoff)
    };
    let object = match api.get_opt(&id.key.name).await {
        Ok(Some(object)) if object.uid().unwrap_or_default() == id.uid => object,
        Ok(_) => return None,
        Err(error) => return again(&error),
    };
    let seen = match effects.look(object).await {
        Ok(seen) => seen,
        Err(Unseen::Api(error)) => return again(&error),
        Err(Unseen::Unreadable(why)) => {
            tracing::error!(why, kind = resource.kind, object = %id.key, "an object that cannot be read; left alone");
            return Some(Next::AwaitChange);
        }
    };
    let Some(call) = effects.step(&seen) else { return Some(Next::AwaitChange) };
    let answer = effects.call(&seen, &call).await;
    match effects.note(&seen, &call, answer).await {
        Ok(next) => Some(next),
        Err(error) => again(&error),
    }
}
