//! The contract between pure controllers and the shells that run them.
//!
//! A [`Reconciler`] looks at a [`World`] (`observe`), copies out every fact that its decision needs, and `decide`s what
//! should happen: a [`Decision`] is a value. A shell (`driver` on an API server, `sim` in memory) carries it out, by machines
//! that are here as well: [`execution`] (what to ask the API for, and what its answers mean), [`queue`] (which object is
//! looked at when), [`wakes`] (which objects a change concerns) and [`keys`] (what is made of drawn chance). Neither half of a reconciler does
//! I/O or reads a clock, and whatever it must remember is in the objects. One that is about all objects at once may keep an
//! index of what it has observed ([`wakes::Notes`] tell it what has changed since), as long as one that starts anew decides
//! the same.

#![cfg_attr(test, allow(clippy::arithmetic_side_effects, reason = "a test that panics fails, as it should"))]

pub mod execution;
pub mod keys;
pub mod queue;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod wakes;

use api::object::{self, Gvk, Key, Target};
use jiff::{SignedDuration, Timestamp};
use objects::take::Take;
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;

/// A controller's logic. `observe` and `decide` are pure; the driver and the simulator are generic over this trait.
pub trait Reconciler: Send + Sync + 'static {
    /// Every fact the decision reads, owned.
    type Observed: Send;

    /// A short stable name (`trainjob`, `job`, …): used in logs, metrics and `--controllers`.
    fn name(&self) -> &'static str;

    /// The kind (or kinds) whose objects are reconciled.
    fn primary(&self) -> Primary;

    /// The other kinds it looks at, and which keys a change of theirs wakes. The primary kind wakes its own objects.
    fn watches(&self) -> Vec<Watch>;

    /// Copies what `decide` needs out of the world; `None` when the primary object is gone and nothing is left to do.
    fn observe(&self, world: &dyn World, target: &Target) -> Option<Self::Observed>;

    /// What should happen.
    fn decide(&self, observed: &Self::Observed, now: Timestamp) -> Decision;

    /// Whether a state of a primary object can ask for a look; a look at any other would observe nothing. For those to whom most
    /// objects mean nothing: they are not even read for them. Watches wake whatever this says.
    fn concerns(&self, _object: &Value) -> bool {
        true
    }

    /// Whether an object rests after each look for as long as the look and its writes took. For those who count what becomes of many
    /// children: of a burst of changes they write the sum, and the busier the server is the fewer writes it takes.
    fn rests(&self) -> bool {
        false
    }
}

/// What a reconciler is keyed by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Primary {
    /// Objects of one kind.
    Kind(Gvk),
    /// Objects of every kind the server serves (garbage collection, namespace deletion): each change of any object wakes
    /// it, deleted objects included.
    Every,
}

/// A kind that a reconciler watches beside its own.
pub struct Watch {
    pub gvk: Gvk,
    pub wakes: Wakes,
}

impl Watch {
    /// A watch of every kind that the server serves, now or later (core/v1 Events excepted).
    pub fn every(wakes: Wakes) -> Self {
        Self { gvk: Gvk::new("*", "*", "*"), wakes }
    }

    /// Whether it is a watch of every kind.
    pub fn is_every(&self) -> bool {
        self.gvk.kind == "*"
    }
}

/// Which keys of the primary kind a changed object wakes.
pub enum Wakes {
    /// The controller owner, where its kind is the primary one.
    ControllerOwner,
    /// Whatever the function says. It gets the changed object (its last state, where it was deleted) and the world.
    Keys(fn(&dyn World, &Value) -> Vec<Target>),
    /// These, whatever has changed; and the change is noted for the reconciler to find. Its first look is at all objects, so what
    /// was there before is not noted.
    Noted(Arc<wakes::Notes>, Vec<Target>),
    /// None: it is only read.
    Nothing,
}

/// Read access to the objects of all kinds that were declared in `watches`. May lag behind the API server: a decision
/// taken on a stale view must be harmless (deterministic names collide, preconditions fail, and it is taken again).
pub trait World {
    /// One object, where it exists.
    fn get(&self, gvk: &Gvk, key: &Key) -> Option<Arc<Value>>;

    /// One object, where it exists, for a reader of many: its kind and its metadata (managed fields may be missing), and perhaps more.
    fn head(&self, gvk: &Gvk, key: &Key) -> Option<Arc<Value>> {
        self.get(gvk, key)
    }

    /// One object, where it exists, of which members may be missing that `take` leaves out.
    fn part(&self, gvk: &Gvk, key: &Key, _take: fn(&str) -> Take) -> Option<Arc<Value>> {
        self.get(gvk, key)
    }

    /// Whether the object of this uid is there and nobody has asked for its end. False is not certain: the object says.
    fn stands(&self, gvk: &Gvk, key: &Key, uid: &str) -> bool {
        self.head(gvk, key).is_some_and(|object| object::uid(&object) == uid && !object::is_terminating(&object))
    }

    /// All of a kind in a namespace (`None`: everywhere), ordered by namespace and name.
    fn list(&self, gvk: &Gvk, namespace: Option<&str>) -> Vec<Arc<Value>>;

    /// Those of a kind that have an owner reference (controller or not) with this uid, ordered by namespace and name; with
    /// an empty uid, those that have no owner at all.
    fn owned_by(&self, gvk: &Gvk, owner_uid: &str) -> Vec<Arc<Value>>;

    /// Those of a kind in a namespace that nobody owns, ordered by name.
    fn unowned(&self, gvk: &Gvk, namespace: &str) -> Vec<Arc<Value>> {
        let mut objects = self.owned_by(gvk, "");
        objects.retain(|object| object::meta(object, "namespace") == namespace);
        objects
    }

    /// Looks at each of a kind in a namespace (`None`: everywhere), ordered by namespace and name, one after the other, so
    /// that a caller can copy a little out of many; managed fields may be missing.
    fn each(&self, gvk: &Gvk, namespace: Option<&str>, look: &mut dyn FnMut(&Arc<Value>)) {
        self.list(gvk, namespace).iter().for_each(look);
    }

    /// As [`World::owned_by`], of objects of which members may be missing that `take` leaves out.
    fn parts_owned_by(&self, gvk: &Gvk, owner_uid: &str, _take: fn(&str) -> Take) -> Vec<Arc<Value>> {
        self.owned_by(gvk, owner_uid)
    }

    /// As [`World::each`] of all namespaces, of objects of which members may be missing that `take` leaves out.
    fn each_part(&self, gvk: &Gvk, _take: fn(&str) -> Take, look: &mut dyn FnMut(Arc<Value>)) {
        self.each(gvk, None, &mut |object| look(object.clone()));
    }

    /// Those of a kind in a namespace (`None`: everywhere) that may have a word, of which JSON escapes nothing, somewhere in
    /// them, ordered by namespace and name: all that have it, and perhaps others.
    fn mentioning(&self, gvk: &Gvk, namespace: Option<&str>, _word: &str) -> Vec<Arc<Value>> {
        self.list(gvk, namespace)
    }

    /// Every kind that the server serves and this world caches: what garbage collection walks.
    fn kinds(&self) -> Vec<Gvk>;
}

/// What should happen. Writes run in order and stop at the first error; the status is written only if all writes
/// succeeded; events only if the status write succeeded (or none was due, or nobody knows whether it did: told twice rather than never).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decision {
    pub writes: Vec<Write>,
    pub status: Option<StatusWrite>,
    /// What is written in place of `status` where a write was refused and the decision went on: a status may count what the
    /// writes make.
    pub after_refusal: AfterRefusal,
    pub events: Vec<Event>,
    pub next: Next,
    pub report: Report,
}

/// The status that a decision writes although one of its writes was refused.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum AfterRefusal {
    /// The decision's own: it counts nothing that its writes make.
    #[default]
    Same,
    /// This one, or none.
    Other(Option<StatusWrite>),
}

impl Decision {
    /// Nothing to do until something changes.
    pub fn nothing() -> Self {
        Self::default()
    }

    /// True when carrying it out would change nothing.
    pub fn is_silent(&self) -> bool {
        self.writes.is_empty() && self.status.is_none() && self.events.is_empty()
    }
}

/// One write to the API. `on_error` says what becomes of the decision when the API refuses it; `on_success` is emitted
/// once it is done, unless there was nothing left to do (the object to create was there, the one to delete was gone).
#[derive(Clone, Debug, PartialEq)]
pub struct Write {
    pub op: Op,
    pub on_error: OnError,
    pub on_success: Option<Event>,
}

impl From<Op> for Write {
    fn from(op: Op) -> Self {
        Self { op, on_error: OnError::Stop, on_success: None }
    }
}

/// What a write does.
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    /// POST. An `AlreadyExists` is success: names are deterministic, so it is our own earlier write, or somebody's object
    /// which the next observation will show.
    Create { object: Value },
    /// POST of an object that needs fresh keys, made of chance that the shell draws. In every string under `stringData`,
    /// `{public}` and `{private}` become the halves of a new key pair. Otherwise as `Create`: an object that is there
    /// already keeps its keys.
    CreateGenerated { object: Value, generator: Generator },
    /// PUT of an object with fresh keys, filled in as `CreateGenerated` does.
    UpdateGenerated { object: Value, generator: Generator },
    /// Server-side apply, forced, as `manager`.
    Apply { object: Value, manager: &'static str },
    /// PUT; the object carries the resource version it was decided on, so a conflict means: look again.
    Update { object: Value },
    /// PATCH of the object or, where named, of a subresource.
    Patch { target: Target, subresource: Option<&'static str>, body: PatchBody },
    /// PUT of a subresource's object (`binding` is a POST).
    Subresource { target: Target, subresource: &'static str, object: Value },
    /// DELETE. `NotFound` is success.
    Delete {
        target: Target,
        propagation: Propagation,
        uid: Option<String>,
        resource_version: Option<String>,
        grace_secs: Option<i64>,
    },
    /// DELETE of all objects of a kind in a namespace, in the background.
    DeleteCollection { gvk: Gvk, namespace: String },
    /// A look past the view, before something that cannot be undone: goes on only if the server has no such object with
    /// this uid. If it has one, that is a conflict: the view lags.
    Absent { target: Target, uid: String },
}

/// A kind of key pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Generator {
    /// P-521. `{private}`: a PEM block `EC PRIVATE KEY` (SEC1); `{public}`: an `authorized_keys` line with its newline.
    SshKeyPair,
    /// Curve25519, both halves in Z85 as ZeroMQ writes them.
    CurveKeyPair,
}

#[derive(Clone, Debug, PartialEq)]
pub enum PatchBody {
    Merge(Value),
    Json(Value),
    Strategic(Value),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Propagation {
    Background,
    Foreground,
    Orphan,
}

/// What becomes of a decision when one of its writes is refused (a conflict is never an error: it is decided again).
#[derive(Clone, Debug, PartialEq)]
pub enum OnError {
    /// Stop: no further write, no status; retry with backoff.
    Stop,
    /// Go on with the writes that follow and with the status, then retry with backoff.
    Continue,
    /// As `Stop`, but first emit this event, its message filled in by [`Event::about_error`].
    EventThenStop(Event),
    /// As `Continue`, but first emit this event, its message filled in by [`Event::about_error`].
    EventThenContinue(Event),
    /// As `EventThenContinue`, but of the writes that follow, those that say so with a greater number are left out: writes of
    /// which many may be refused for one reason come in batches, and a batch only after one that went well.
    EventThenSkip(Event, u32),
    /// As `EventThenStop`, but the object says so, too: this status is written in place of the decision's, filled in by
    /// [`StatusWrite::about_error`].
    EventThenStatus(Event, StatusWrite),
}

/// A write of the primary object's status.
#[derive(Clone, Debug, PartialEq)]
pub enum StatusWrite {
    /// PUT of the whole object to `/status`, under the resource version it carries.
    Replace(Value),
    /// Merge patch of `/status`: the body is `{"status": …}` with the difference only.
    Merge(Value),
}

impl StatusWrite {
    /// The status after a refused write: filled in as [`Event::about_error`] does, wherever a text has a place for it.
    #[must_use]
    pub fn about_error(&self, error: &str) -> Self {
        fn fill_all(value: &mut Value, error: &str) {
            match value {
                Value::String(text) => *text = fill(text, error),
                Value::Array(items) => items.iter_mut().for_each(|item| fill_all(item, error)),
                Value::Object(members) => members.values_mut().for_each(|member| fill_all(member, error)),
                Value::Null | Value::Bool(_) | Value::Number(_) => {}
            }
        }
        let mut filled = self.clone();
        let (Self::Replace(body) | Self::Merge(body)) = &mut filled;
        fill_all(body, error);
        filled
    }
}

/// A core/v1 Event about an object. Equal events of one object are counted up, not multiplied.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// Whom it is about; `None`: the primary object.
    pub regarding: Option<Value>,
    pub kind: EventType,
    pub reason: String,
    pub message: String,
    /// The reporting component (`trainer-trainjob-controller`, `job-controller`, …).
    pub reporter: &'static str,
    /// What the controller was doing (`Reconciling`); empty where upstream says nothing.
    pub action: &'static str,
}

impl Event {
    /// The event about a refused write: in its message `{error}` becomes the API's message, `{error:N}` at most the first
    /// N bytes of it, with ` ...` behind them where that cut it off.
    #[must_use]
    pub fn about_error(&self, error: &str) -> Self {
        Self { message: fill(&self.message, error), ..self.clone() }
    }
}

fn fill(text: &str, error: &str) -> String {
    let mut filled = text.replace("{error}", error);
    if let Some((head, rest)) = text.split_once("{error:")
        && let Some((max, tail)) = rest.split_once('}')
        && let Ok(max) = max.parse::<usize>()
    {
        let cut = if error.len() > max { &error[..error.floor_char_boundary(max)] } else { error };
        let dots = if cut.len() < error.len() { " ..." } else { "" };
        filled = format!("{head}{cut}{dots}{tail}");
    }
    filled
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventType {
    Normal,
    Warning,
}

impl EventType {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

/// When to look again even if nothing changes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Next {
    #[default]
    AwaitChange,
    After(SignedDuration),
    /// After the usual backoff: the decision could not be completed (the reason is in the report).
    Backoff,
}

/// Why the decision is what it is: one line a consideration, in order. `explain` prints it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report(pub Vec<String>);

impl Report {
    pub fn note(&mut self, text: impl Into<String>) {
        self.0.push(text.into());
    }
}

/// What is to be done about an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Try again after a backoff.
    Retry,
    /// Try again after a backoff, and not before this time is over: the server has asked for it.
    Later(Duration),
    /// Look again at once: the world has moved on (conflict).
    Again,
    /// Nothing will help until somebody changes something.
    AwaitChange,
}
