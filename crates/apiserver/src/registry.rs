//! The synchronous core: what a request does to the store.
//!
//! A write is computed from the visible state and handed out as an [`Attempt`]: a transaction and what to answer once it is
//! durable. If the state has moved on, the store refuses and the request is computed again. Async callers use
//! [`Core::run`], a simulator [`Core::run_now`]; neither has a second code path.

mod admission;
mod apart;
mod catalog;
mod delete;
mod follow;
mod ledger;
mod many;
mod patch;
mod read;
pub(crate) mod scale;
mod turns;
pub(crate) mod write;

pub use catalog::{Catalog, Custom, Live, Served, compare_versions};
pub use delete::{DeleteOptions, Propagation};
pub use follow::{Change, Followed, Following};
pub use patch::PatchKind;
pub use read::ListAnswer;
pub use write::{Call, Tracked};

pub(crate) use admission::Review;
pub(crate) use catalog::bucket;
pub(crate) use patch::{apply_refused, refused, unconverted};
pub(crate) use read::{not_found, parse_revision, too_large};
pub(crate) use write::{Old, Pruned, enforce_namespace, other_uid, same_revision, time};

use bytes::Bytes;
use jiff::Timestamp;
use objects::packed::Packed;
use resource::User;
use resource::admission::{Admission, Objects};
use resource::status::Status;
use resource::{Access, ClockAndDice, Context, Quotas, Tokens};
use serde_json::Value;
use std::sync::{Arc, PoisonError, RwLock};
use store::{Entry, Event, Key, Op, Revision, Store, Txn, WriteError};
use turns::Turns;

/// The real clock and real chance.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealWorld;

impl ClockAndDice for RealWorld {
    fn now(&self) -> Timestamp {
        clock::now()
    }

    fn uid(&self) -> String {
        uuid::Uuid::new_v4().to_string()
    }

    fn suffix(&self) -> String {
        /// No vowels and no look-alikes, as upstream (`k8s.io/apimachinery/pkg/util/rand`).
        const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
        (0..5).map(|_| LETTERS[rand::random_range(0..LETTERS.len())] as char).collect()
    }

    fn below(&self, bound: u32) -> u32 {
        if bound == 0 { 0 } else { rand::random_range(0..bound) }
    }
}

/// A kind in a version, and where in it a request points.
#[derive(Clone)]
pub struct Target {
    pub served: Arc<Served>,
    /// Empty for cluster-scoped kinds and for lists over all namespaces.
    pub namespace: String,
    /// Empty for collections.
    pub name: String,
    /// Empty for the object itself.
    pub subresource: String,
}

impl Target {
    pub(crate) fn key(&self) -> Key {
        Key::new(&self.namespace, &self.name)
    }
}

/// An object in an answer: as stored, or made for the occasion.
#[derive(Clone)]
pub enum Object {
    Stored(Arc<Entry>),
    Made(Arc<Value>),
}

impl Object {
    /// The object's tree.
    pub fn value(&self) -> Arc<Value> {
        match self {
            Self::Stored(entry) => entry.value(),
            Self::Made(value) => value.clone(),
        }
    }

    /// The object's tree, for a reader of many objects, once each.
    pub(crate) fn glance(&self) -> Arc<Value> {
        match self {
            Self::Stored(entry) => entry.object.glance(),
            Self::Made(value) => value.clone(),
        }
    }

    /// The object's tree, of which managed fields may be missing, for a reader of many objects, once each.
    pub(crate) fn lean(&self) -> Arc<Value> {
        match self {
            Self::Stored(entry) => entry.object.lean(),
            Self::Made(value) => value.clone(),
        }
    }

    /// The object's text, if it is kept.
    pub(crate) fn text(&self) -> Option<Bytes> {
        match self {
            Self::Stored(entry) => Some(entry.bytes()),
            Self::Made(_) => None,
        }
    }

    /// The object as it is kept.
    pub(crate) fn packed(&self, custom: bool) -> Arc<Packed> {
        match self {
            Self::Stored(entry) => entry.object.clone(),
            Self::Made(value) => Arc::new(Packed::new(value.clone(), crate::wire::to_vec(value, custom))),
        }
    }
}

/// What a request came to.
#[derive(Clone)]
pub struct Answer {
    pub code: u16,
    pub object: Object,
    /// Texts of `Warning: 299` headers.
    pub warnings: Vec<String>,
}

/// One try at a write.
pub enum Attempt {
    /// Nothing needs to be stored.
    Done(Answer),
    /// Store this, then answer.
    Write(Box<Pending>),
}

impl Attempt {
    /// Nothing to do and nothing to say.
    pub fn nothing() -> Self {
        Self::made(200, Value::Null)
    }

    /// An answer without a write.
    pub fn made(code: u16, value: Value) -> Self {
        Self::Done(Answer { code, object: Object::Made(Arc::new(value)), warnings: Vec::new() })
    }

    /// The same write with another answer.
    #[must_use]
    pub fn replying(self, code: u16, reply: Value) -> Self {
        match self {
            Self::Done(answer) => Self::Done(Answer { code, object: Object::Made(Arc::new(reply)), ..answer }),
            Self::Write(mut pending) => {
                pending.code = code;
                pending.reply = Some(reply);
                Self::Write(pending)
            }
        }
    }
}

/// A write that waits for the store.
pub struct Pending {
    pub(crate) txn: Txn,
    pub(crate) code: u16,
    pub(crate) warnings: Vec<String>,
    /// `None`: the object of the last operation, as stored.
    pub(crate) reply: Option<Value>,
    pub(crate) target: Target,
}

/// The registry of all kinds over one store.
pub struct Core {
    pub store: Store,
    catalog: RwLock<Arc<Catalog>>,
    pub(crate) plugins: Vec<Arc<dyn Admission>>,
    pub world: Arc<dyn ClockAndDice>,
    pub tokens: Arc<dyn Tokens>,
    turns: Turns,
    places: apart::Places,
    pub(crate) access: Arc<dyn Access>,
    ledgers: ledger::Ledgers,
}

impl Core {
    pub fn new(
        store: Store,
        catalog: Catalog,
        plugins: Vec<Arc<dyn Admission>>,
        world: Arc<dyn ClockAndDice>,
        tokens: Arc<dyn Tokens>,
        access: Arc<dyn Access>,
        quotas: Arc<dyn Quotas>,
    ) -> Self {
        Self {
            store,
            catalog: RwLock::new(Arc::new(catalog)),
            plugins,
            world,
            tokens,
            turns: Turns::default(),
            places: apart::Places::default(),
            access,
            ledgers: ledger::Ledgers::new(quotas),
        }
    }

    /// The kinds served at present.
    pub fn catalog(&self) -> Arc<Catalog> {
        self.catalog.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Serves other kinds from now on.
    pub fn set_catalog(&self, catalog: Catalog) {
        *self.catalog.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(catalog);
    }

    /// Carries out a write (`long`: see [`Core::apart`]), trying again while others get in between. Each lost race is another writer's success, so
    /// there is always progress; and a writer that lost one waits in the object's row, where it can be overtaken only by the
    /// writes that were already on their way.
    ///
    /// # Errors
    /// What `attempt` says, or 500 where the store cannot write.
    pub(crate) async fn run(
        &self,
        long: bool,
        attempt: impl Fn() -> Result<Attempt, Status>,
    ) -> Result<Answer, Status> {
        let mut turn = None;
        loop {
            let seen = self.store.revision();
            match self.apart(long, &attempt).await? {
                Attempt::Done(answer) => return Ok(answer),
                Attempt::Write(pending) => {
                    let (txn, rest) = pending.split()?;
                    let place = txn.ops.first().map(Op::place).map(|(bucket, key)| (bucket.clone(), key.clone()));
                    if turn.is_none()
                        && let Some(place) = &place
                        && self.turns.has_row(place)
                    {
                        // what it holds back from others is reserved again when it is its turn
                        drop(txn);
                        turn = Some(self.turns.join(place.clone()).await);
                        continue;
                    }
                    match self.store.submit(txn).await {
                        Ok(events) => return Ok(rest.conclude(&events)),
                        Err(error) => self.after_failure(error, seen)?,
                    }
                    if turn.is_none()
                        && let Some(place) = place
                    {
                        turn = Some(self.turns.join(place).await);
                    }
                }
            }
        }
    }

    /// As [`Core::run`] without async: at once on a memory store, blocking on another. It waits in no row, so on a store
    /// with other writers it may lose more often.
    ///
    /// # Errors
    /// As [`Core::run`].
    pub fn run_now(&self, attempt: impl Fn() -> Result<Attempt, Status>) -> Result<Answer, Status> {
        loop {
            let seen = self.store.revision();
            match attempt()? {
                Attempt::Done(answer) => return Ok(answer),
                Attempt::Write(pending) => {
                    let (txn, rest) = pending.split()?;
                    match self.store.submit(txn).wait() {
                        Ok(events) => return Ok(rest.conclude(&events)),
                        Err(error) => self.after_failure(error, seen)?,
                    }
                }
            }
        }
    }

    /// Whether a write that failed may be computed again: it lost to a write that came after `seen`.
    fn after_failure(&self, error: WriteError, seen: Revision) -> Result<(), Status> {
        match error {
            WriteError::Conflict if self.store.revision() > seen => Ok(()),
            // A request that expects what was never there would be computed for ever.
            WriteError::Conflict => Err(internal("the write does not fit the state from which it was computed")),
            WriteError::Full(_) | WriteError::ReadOnly(_) | WriteError::Failed(_) => Err(not_written(&error)),
        }
    }

    /// Gives `work` the context that strategies look at.
    pub(crate) fn with_context<T>(
        &self,
        user: &User,
        target: &Target,
        dry_run: bool,
        work: impl FnOnce(&Context<'_>) -> T,
    ) -> T {
        let lookup =
            |group: &str, plural: &str, namespace: &str, name: &str| Objects::get(self, group, plural, namespace, name);
        let list = |group: &str, plural: &str, namespace: &str| Objects::list(self, group, plural, namespace);
        let plural_of = |kind: &Value| self.catalog().kind_of(kind).map(|served| served.resource.plural.clone());
        work(&Context {
            now: self.world.now(),
            namespace: &target.namespace,
            name: &target.name,
            user: &user.name,
            groups: &user.groups,
            who: user,
            dry_run,
            tokens: &*self.tokens,
            lookup: &lookup,
            list: &list,
            plural_of: &plural_of,
            world: &*self.world,
        })
    }
}

impl Objects for Core {
    fn get(&self, group: &str, plural: &str, namespace: &str, name: &str) -> Option<Arc<Value>> {
        let entry = self.store.get(&catalog::bucket(group, plural), &Key::new(namespace, name))?;
        Some(entry.value())
    }

    fn list(&self, group: &str, plural: &str, namespace: &str) -> Vec<Arc<Value>> {
        listed(&self.store, group, plural, namespace)
    }
}

/// All objects of a kind; an empty `namespace` stands for all.
pub(crate) fn listed(store: &Store, group: &str, plural: &str, namespace: &str) -> Vec<Arc<Value>> {
    let snapshot = store.snapshot(&catalog::bucket(group, plural));
    let namespace = (!namespace.is_empty()).then_some(namespace);
    snapshot.iter(namespace, None).map(|entry| entry.value()).collect()
}

impl Pending {
    /// The transaction, checked: whatever way an object came to be, it is stored only if it can be read again.
    fn split(mut self: Box<Self>) -> Result<(Txn, Box<Self>), Status> {
        let txn = std::mem::take(&mut self.txn);
        for op in &txn.ops {
            if let Op::Put { value, .. } = op {
                write::bounded(value)?;
            }
        }
        Ok((txn, self))
    }

    fn conclude(self, events: &[Event]) -> Answer {
        let object = match (self.reply, events.last()) {
            (Some(reply), _) => Object::Made(Arc::new(reply)),
            (None, Some(event)) => self.target.served.present(&event.entry),
            (None, None) => Object::Made(Arc::default()),
        };
        Answer { code: self.code, object, warnings: self.warnings }
    }
}

/// The store cannot write.
pub(crate) fn not_written(error: &WriteError) -> Status {
    match error {
        // for what etcd says of itself when it is full, upstream answers 500; 507 says what it is
        WriteError::Full(_) => Status::new(507, "InsufficientStorage", format!("Internal error occurred: {error}")),
        WriteError::Conflict | WriteError::ReadOnly(_) | WriteError::Failed(_) => internal(error.to_string()),
    }
}

pub(crate) fn internal(message: impl Into<String>) -> Status {
    Status::internal(message)
}
