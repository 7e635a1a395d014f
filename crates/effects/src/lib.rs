//! Follows the objects of one kind, and carries out what a pure step decides for each.
//!
//! It is for work outside the API server, such as making machines, sending files or submitting jobs. Such calls take minutes, and their
//! answers can get lost. Controllers that only read and write objects belong to `reconcile` and run in `driver`.
//!
//! # Expected flow
//! One [`Loop`] follows all objects of its watch. It handles an object that is new, has changed, was woken or is due: it reads the object
//! again, then calls [`Effects::look`], [`Effects::step`], [`Effects::call`] and [`Effects::note`] in this order.
//!
//! # Guarantees
//! - Only one task at a time handles an object. If the object changes meanwhile, it is handled again.
//! - An object that is deleted and created again counts as another object: work on the old one does not delay it.
//! - An idle object costs an entry in a map, and no task.
//! - When the loop stops, it drops unfinished work. The next loop handles the object again.
//!
//! # What an implementer must ensure
//! - Before `call` begins, the object holds everything that must survive a crash: a crash leads to the same step again.
//! - Each call can be repeated.

#![cfg_attr(test, allow(clippy::arithmetic_side_effects, reason = "a test that panics fails, as it should"))]

mod wakes;

use api::object::{Gvk, Key};
use futures::{Stream, StreamExt};
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::runtime::watcher;
use kube::{Client, ResourceExt};
use reconcile::Next;
use reconcile::queue::Lane;
use serde_json::json;
use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use tokio_util::task::JoinMap;
use wakes::Id;
pub use wakes::Wakes;

/// Number of objects that a loop handles at the same time; the others wait for their turn.
const AT_ONCE: usize = 256;
/// The pause after a watch that broke.
const WATCH_RETRY: Duration = Duration::from_millis(500);

/// Why the facts about an object could not be read.
#[derive(Debug, thiserror::Error)]
pub enum Unseen {
    /// A request to the API server failed; it is repeated.
    #[error(transparent)]
    Api(#[from] kube::Error),
    /// The object is malformed. The loop leaves it alone until it changes.
    #[error("{0}")]
    Unreadable(String),
}

impl From<serde_json::Error> for Unseen {
    fn from(error: serde_json::Error) -> Self {
        Self::Unreadable(error.to_string())
    }
}

/// How the objects of one kind are handled.
pub trait Effects: Send + Sync + 'static {
    /// The part of an object whose change leads to another look. What the loop itself writes is no part of it.
    type Mark: Clone + PartialEq + Send;
    /// The facts from which a step is decided.
    type Seen: Send + Sync;
    /// The action that a step decides on.
    type Call: Send + Sync;
    /// The result of the action.
    type Answer: Send;

    /// See [`Effects::Mark`].
    fn mark(&self, object: &DynamicObject) -> Self::Mark;

    /// Reads the facts about an object, which the API server has just returned.
    fn look(&self, object: DynamicObject) -> impl Future<Output = Result<Self::Seen, Unseen>> + Send;

    /// Decides what to do next; `None`: nothing until something changes. Has no effects itself.
    fn step(&self, seen: &Self::Seen) -> Option<Self::Call>;

    /// Carries out the call. A failure is an answer, too.
    fn call(&self, seen: &Self::Seen, call: &Self::Call) -> impl Future<Output = Self::Answer> + Send;

    /// Records the answer, and says when to look again.
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
}

impl<E: Effects> Loop<E> {
    /// A loop over the objects of a namespaced kind that `watched` selects.
    pub fn new(client: Client, kind: &Gvk, watched: watcher::Config, effects: E) -> Self {
        let (resource, wakes) = (resource(kind), Wakes::default());
        Self { effects: Arc::new(effects), client, resource, watched, wakes }
    }

    /// A handle by which other code makes this loop look at objects.
    pub fn wakes(&self) -> Wakes<E::Mark> {
        self.wakes.clone()
    }

    /// Works until `stop`.
    pub async fn run(self, stop: CancellationToken) {
        let all: Api<DynamicObject> = Api::all_with(self.client.clone(), &self.resource);
        let mut events = pin!(events(all, self.watched.clone(), &self.resource.kind));
        // the objects of a list that is under way
        let mut listed = BTreeSet::new();
        let mut looks: JoinMap<Id, Option<Next>> = JoinMap::new();
        loop {
            while looks.len() < AT_ONCE
                && let Some(id) = self.wakes.pop()
            {
                looks.spawn(id.clone(), look(self.effects.clone(), self.client.clone(), self.resource.clone(), id));
            }
            let is_full = looks.len() >= AT_ONCE;
            tokio::select! {
                () = stop.cancelled() => break,
                event = events.next() => match event {
                    Some(event) => self.take(event, &mut listed),
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
            // objects that are not in the list were deleted meanwhile
            watcher::Event::InitDone => self.wakes.wake_where(|key, _| !listed.contains(key)),
            watcher::Event::Apply(object) => self.follow(&object, Lane::Changed),
            watcher::Event::Delete(object) => self.wakes.forget(&key_of(&object), &object.uid().unwrap_or_default()),
        }
    }

    fn follow(&self, object: &DynamicObject, lane: Lane) {
        self.wakes.follow(key_of(object), object.uid().unwrap_or_default(), self.effects.mark(object), lane);
    }
}

/// How the API names the objects of a kind.
pub fn resource(kind: &Gvk) -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk(&kind.group, &kind.version, &kind.kind))
}

/// Watches objects. A watch that breaks is logged and begins again; `kind` is its name in the log.
pub fn events(
    objects: Api<DynamicObject>,
    watched: watcher::Config,
    kind: &str,
) -> impl Stream<Item = watcher::Event<DynamicObject>> + Send {
    watcher(objects, watched).filter_map(move |event| async move {
        if let Err(error) = &event {
            tracing::warn!(%error, kind, "watching objects; trying again");
            tokio::time::sleep(WATCH_RETRY).await;
        }
        event.ok()
    })
}

/// Removes a finalizer of an object as it was read, so that the object goes. An object that has gone is no error.
///
/// # Errors
/// The API server refuses it or does not answer.
pub async fn release(api: &Api<DynamicObject>, object: &DynamicObject, finalizer: &str) -> kube::Result<()> {
    let left: Vec<&String> = object.finalizers().iter().filter(|held| *held != finalizer).collect();
    let patch = json!({"metadata": {"resourceVersion": object.resource_version(), "finalizers": left}});
    match api.patch(&object.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        done => done.map(drop),
    }
}

fn key_of(object: &DynamicObject) -> Key {
    Key { namespace: object.namespace().unwrap_or_default(), name: object.name_any() }
}

/// Looks at an object once. `None`: it is gone.
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
