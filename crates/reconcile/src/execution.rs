//! Carries out a decision without I/O: a state machine that asks for one request at a time.
//!
//! [`Execution::step`] takes the answer to the last request and returns the next request, or the end. The driver sends the requests
//! to an API server, the simulator to a server in memory with faults, `testing` to a model. None of them knows the
//! order of writes, what a conflict means or when an event is due: that is here, once.

use crate::keys::{self, Entropy};
use crate::{AfterRefusal, Decision, Event, Fate, OnError, Op, PatchBody, Propagation, StatusWrite, Write};
use api::object::{self, Key, Target};
use serde_json::{Map, Value, json};
use std::collections::VecDeque;
use std::mem;
use std::sync::Arc;
use std::time::Duration;
use std::vec;

/// A request to the API.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    pub verb: Verb,
    /// The object; without a name, its collection.
    pub target: Target,
    pub subresource: Option<&'static str>,
    /// What is sent; null for nothing.
    pub body: Value,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    Get,
    Post,
    Put,
    MergePatch,
    JsonPatch,
    StrategicPatch,
    /// Server-side apply, forced, as this field manager.
    Apply(&'static str),
    Delete,
}

impl Call {
    fn new(verb: Verb, target: Target, body: Value) -> Self {
        Self { verb, target, subresource: None, body }
    }

    /// The HTTP method.
    pub fn method(&self) -> &'static str {
        match self.verb {
            Verb::Get => "GET",
            Verb::Post => "POST",
            Verb::Put => "PUT",
            Verb::MergePatch | Verb::JsonPatch | Verb::StrategicPatch | Verb::Apply(_) => "PATCH",
            Verb::Delete => "DELETE",
        }
    }

    pub fn content_type(&self) -> &'static str {
        match self.verb {
            Verb::Get | Verb::Post | Verb::Put | Verb::Delete => "application/json",
            Verb::MergePatch => "application/merge-patch+json",
            Verb::JsonPatch => "application/json-patch+json",
            Verb::StrategicPatch => "application/strategic-merge-patch+json",
            Verb::Apply(_) => "application/apply-patch+yaml",
        }
    }

    /// What follows the target's path: subresource and query.
    pub fn tail(&self) -> String {
        let subresource = self.subresource.map(|name| format!("/{name}")).unwrap_or_default();
        match self.verb {
            Verb::Apply(manager) => format!("{subresource}?fieldManager={manager}&force=true"),
            _ => subresource,
        }
    }
}

impl Verb {
    /// Whether the answer is the object as it is from now on.
    fn shows(self, answer: &Value) -> bool {
        !object::uid(answer).is_empty()
            && match self {
                Self::Get => false,
                Self::Delete => object::is_terminating(answer),
                _ => true,
            }
    }
}

/// What a shell is asked for.
#[derive(Clone, Debug, PartialEq)]
pub enum Request {
    /// To be sent to the API; answered by [`Answer::Accepted`] or [`Answer::Refused`].
    Call(Call),
    /// Chance, for fresh keys ([`Op::CreateGenerated`], [`Op::UpdateGenerated`]); answered by [`Answer::Drawn`].
    Draw,
    /// The API has shown this object in its last answer: the view has it from now on. Answered by [`Answer::Noted`].
    Show(Arc<Value>),
    /// Answered by [`Answer::Noted`], whatever became of it: events are best effort.
    Record(Event),
}

/// What came of a request.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    Accepted(Arc<Value>),
    Refused(Refusal),
    Drawn(Entropy),
    Noted,
}

/// Why the API did not do what it was asked to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Refusal {
    /// HTTP's; 0 where no answer came.
    pub code: u16,
    /// The Status' reason (`Conflict`, `AlreadyExists`, …).
    pub reason: String,
    pub message: String,
    /// How long the server asks to be left alone (`Retry-After`).
    pub retry_after: Option<Duration>,
}

impl Refusal {
    /// What is to be done about it. An object that the API calls invalid stays so until something that it was made from
    /// changes; all else may pass by itself.
    pub fn fate(&self) -> Fate {
        match (self.reason.as_str(), self.code, self.retry_after) {
            ("Conflict", _, None) => Fate::Again,
            ("Invalid", 422, None) => Fate::AwaitChange,
            (_, _, Some(wait)) => Fate::Later(wait),
            (_, _, None) => Fate::Retry,
        }
    }

    /// Whether what was asked for may have been done all the same: no answer came, or the server, or what is before it, failed on
    /// the way.
    fn leaves_open(&self) -> bool {
        self.code == 0 || (self.code >= 500 && self.retry_after.is_none())
    }
}

/// How carrying out a decision ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    Done,
    /// The view was stale (conflict): look again.
    Again,
    /// With what each failure says, and what is to be done about all of them: [`Fate::Later`] where the server said so to one,
    /// else [`Fate::Retry`] where one may pass by itself, else [`Fate::AwaitChange`].
    Failed(Vec<String>, Fate),
}

/// The next step.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    Ask(Request),
    End(Outcome),
}

/// A decision that is being carried out: writes in order; the status, or another after a refusal, if no write failed for good;
/// the events if the status is written, or may be: the next look finds nothing to tell where it is.
///
/// A conflict ends it at once and is no error. A write marked `Continue` that fails is reported and tried again, and what
/// follows it is done all the same.
#[derive(Debug)]
pub struct Execution {
    target: Target,
    writes: vec::IntoIter<Write>,
    status: Option<StatusWrite>,
    after_refusal: AfterRefusal,
    events: vec::IntoIter<Event>,
    /// What follows from the last answer.
    due: VecDeque<Request>,
    /// The outstanding call, and what it is for.
    waiting: Option<(Verb, What)>,
    /// What waits for its keys.
    keyless: Option<Op>,
    /// The batch in which a write was refused ([`OnError::EventThenSkip`]): the later ones are left out.
    last_batch: Option<u32>,
    failures: Vec<String>,
    fate: Option<Fate>,
    end: Option<Outcome>,
}

#[derive(Debug)]
enum What {
    Write(Box<Expected>),
    Status,
    /// The status in place of the decision's, after a refused write.
    StatusOfRefusal,
    /// A look at an object that a write has changed without showing it.
    Look,
}

/// What follows from the answer to a write.
#[derive(Debug)]
struct Expected {
    on_error: OnError,
    on_success: Option<Event>,
    care: Care,
}

/// What a refusal of a write may mean beside a failure.
#[derive(Clone, Debug)]
enum Care {
    /// A pod gets its node. The answer does not show the pod, and a view in which it still waits would give its place away: it is
    /// looked at, whatever the answer was.
    Bound(Target),
    /// It is there already: names are deterministic, so it is our own earlier write, or somebody's object that the next look
    /// will show. With the prefix that the name was made from.
    Create {
        name: String,
        prefix: String,
    },
    /// It has gone already, and the watch will tell.
    Gone,
    /// It must not be there with this uid.
    Absent {
        uid: String,
    },
    Nothing,
}

impl Execution {
    /// Of a decision about `target`. When to look again (`next`) is the caller's to keep.
    pub fn new(target: Target, decision: Decision) -> Self {
        let Decision { writes, status, after_refusal, events, next: _, report: _ } = decision;
        Self {
            target,
            writes: writes.into_iter(),
            status,
            after_refusal,
            events: events.into_iter(),
            due: VecDeque::new(),
            waiting: None,
            keyless: None,
            last_batch: None,
            failures: Vec::new(),
            fate: None,
            end: None,
        }
    }

    /// The next request, after the answer to the last; `None` at the start. After [`Step::End`] it says the same again.
    pub fn step(&mut self, answer: Option<Answer>) -> Step {
        match answer {
            Some(Answer::Accepted(shown)) => self.accepted(shown),
            Some(Answer::Refused(refusal)) => self.refused(&refusal),
            Some(Answer::Drawn(entropy)) => {
                let filled = self.keyless.take().map(|op| with_keys(op, &entropy));
                self.due.extend(filled.map(|op| Request::Call(request(op).0)));
            }
            Some(Answer::Noted) | None => {}
        }
        loop {
            if let Some(request) = self.due.pop_front() {
                return Step::Ask(request);
            }
            if let Some(end) = &self.end {
                return Step::End(end.clone());
            }
            if let Some(write) = self.writes.next() {
                self.begin(write);
            } else if let Some(status) = self.status.take() {
                self.begin_status(status, What::Status);
            } else if let Some(event) = self.events.next() {
                self.due.push_back(Request::Record(event));
            } else {
                self.end = Some(self.outcome());
            }
        }
    }

    fn begin(&mut self, write: Write) {
        let Write { op, on_error, on_success } = write;
        if let (OnError::EventThenSkip(_, batch), Some(last)) = (&on_error, self.last_batch)
            && *batch > last
        {
            return;
        }
        let keyless = matches!(op, Op::CreateGenerated { .. } | Op::UpdateGenerated { .. }).then(|| op.clone());
        let (call, care) = request(op);
        let verb = call.verb;
        self.due.push_back(if keyless.is_some() { Request::Draw } else { Request::Call(call) });
        self.keyless = keyless;
        self.waiting = Some((verb, What::Write(Box::new(Expected { on_error, on_success, care }))));
    }

    fn begin_status(&mut self, status: StatusWrite, what: What) {
        let (verb, body) = match status {
            StatusWrite::Replace(object) => (Verb::Put, object),
            StatusWrite::Merge(body) => (Verb::MergePatch, body),
        };
        let call = Call { subresource: Some("status"), ..Call::new(verb, self.target.clone(), body) };
        self.waiting = Some((verb, what));
        self.due.push_back(Request::Call(call));
    }

    fn accepted(&mut self, shown: Arc<Value>) {
        let Some((verb, what)) = self.waiting.take() else { return };
        if let What::Write(expected) = &what
            && let Care::Absent { uid } = &expected.care
            && object::uid(&shown) == uid
        {
            self.end = Some(Outcome::Again);
            return;
        }
        if verb.shows(&shown) || (matches!(what, What::Look) && !object::uid(&shown).is_empty()) {
            self.due.push_back(Request::Show(shown));
        }
        match what {
            // a look changes nothing
            What::Write(expected) if verb != Verb::Get => {
                self.due.extend(expected.on_success.map(Request::Record));
                self.look(&expected.care);
            }
            What::Write(_) | What::Status | What::Look => {}
            What::StatusOfRefusal => self.end = Some(self.outcome()),
        }
    }

    fn refused(&mut self, refusal: &Refusal) {
        let Some((_, what)) = self.waiting.take() else { return };
        match what {
            What::Write(expected) => {
                let nothing_to_do = match &expected.care {
                    Care::Create { .. } => refusal.reason == "AlreadyExists",
                    Care::Gone | Care::Absent { .. } => refusal.code == 404,
                    Care::Bound(_) | Care::Nothing => false,
                };
                let care = expected.care.clone();
                match refusal.fate() {
                    _ if nothing_to_do => {}
                    Fate::Again => self.end = Some(Outcome::Again),
                    Fate::Retry | Fate::Later(_) | Fate::AwaitChange => self.failed_write(refusal, *expected),
                }
                self.look(&care);
            }
            What::Look => {}
            What::Status if refusal.code == 404 => self.end = Some(Outcome::Done),
            What::Status if refusal.fate() == Fate::Again => self.end = Some(Outcome::Again),
            What::Status | What::StatusOfRefusal => {
                self.failed(refusal.message.clone(), refusal);
                if matches!(what, What::Status) && refusal.leaves_open() {
                    self.due.extend(self.events.by_ref().map(Request::Record));
                }
                self.end = Some(self.outcome());
            }
        }
    }

    fn look(&mut self, care: &Care) {
        // a status that is under way goes first, and alone
        if let (Care::Bound(target), None) = (care, &self.waiting) {
            self.waiting = Some((Verb::Get, What::Look));
            self.due.push_back(Request::Call(Call::new(Verb::Get, target.clone(), Value::Null)));
        }
    }

    fn failed_write(&mut self, refusal: &Refusal, expected: Expected) {
        let Expected { on_error, on_success: _, care } = expected;
        let text = about_the_prefix(&refusal.message, &care);
        self.failed(text.clone(), refusal);
        if let AfterRefusal::Other(status) = mem::take(&mut self.after_refusal) {
            self.status = status;
        }
        let goes_on = match on_error {
            OnError::Stop => false,
            OnError::Continue => true,
            OnError::EventThenStop(event) => {
                self.due.push_back(Request::Record(event.about_error(&text)));
                false
            }
            OnError::EventThenContinue(event) => {
                self.due.push_back(Request::Record(event.about_error(&text)));
                true
            }
            OnError::EventThenSkip(event, batch) => {
                self.due.push_back(Request::Record(event.about_error(&text)));
                self.last_batch.get_or_insert(batch);
                true
            }
            OnError::EventThenStatus(event, status) => {
                self.due.push_back(Request::Record(event.about_error(&text)));
                self.begin_status(status.about_error(&text), What::StatusOfRefusal);
                return;
            }
        };
        if !goes_on {
            self.end = Some(self.outcome());
        }
    }

    fn failed(&mut self, text: String, refusal: &Refusal) {
        self.failures.push(text);
        self.fate = Some(match (self.fate.take(), refusal.fate()) {
            (Some(Fate::Later(one)), Fate::Later(other)) => Fate::Later(one.max(other)),
            (Some(Fate::Later(wait)), _) | (_, Fate::Later(wait)) => Fate::Later(wait),
            (None | Some(Fate::AwaitChange), Fate::AwaitChange) => Fate::AwaitChange,
            (_, _) => Fate::Retry,
        });
    }

    fn outcome(&self) -> Outcome {
        match &self.fate {
            Some(fate) => Outcome::Failed(self.failures.clone(), fate.clone()),
            None => Outcome::Done,
        }
    }
}

/// Speaks of the prefix where a name was made from one, as the API server does when it makes the name: the texts for
/// several attempts are then equal, and their events are counted up.
fn about_the_prefix(text: &str, care: &Care) -> String {
    match care {
        Care::Create { name, prefix } if !prefix.is_empty() => {
            text.replace(&format!("{name:?}"), &format!("{prefix:?}"))
        }
        Care::Create { .. } | Care::Gone | Care::Absent { .. } | Care::Bound(_) | Care::Nothing => text.to_owned(),
    }
}

fn create(object: Value) -> Call {
    let Target { gvk, key } = Target::of(&object);
    Call::new(Verb::Post, Target { gvk, key: Key::new(&key.namespace, "") }, object)
}

fn named(object: &Value) -> Care {
    Care::Create {
        name: object::meta(object, "name").to_owned(),
        prefix: object::meta(object, "generateName").to_owned(),
    }
}

/// The operation once its keys are made.
fn with_keys(op: Op, entropy: &Entropy) -> Op {
    match op {
        Op::CreateGenerated { object, generator } => Op::Create { object: keys::fill(object, generator, entropy) },
        Op::UpdateGenerated { object, generator } => Op::Update { object: keys::fill(object, generator, entropy) },
        other => other,
    }
}

fn request(op: Op) -> (Call, Care) {
    match op {
        Op::Create { object } | Op::CreateGenerated { object, .. } => {
            let care = named(&object);
            (create(object), care)
        }
        Op::Apply { object, manager } => (Call::new(Verb::Apply(manager), Target::of(&object), object), Care::Nothing),
        Op::Update { object } | Op::UpdateGenerated { object, .. } => {
            (Call::new(Verb::Put, Target::of(&object), object), Care::Nothing)
        }
        Op::Patch { target, subresource, body } => {
            let (verb, body) = match body {
                PatchBody::Merge(body) => (Verb::MergePatch, body),
                PatchBody::Json(body) => (Verb::JsonPatch, body),
                PatchBody::Strategic(body) => (Verb::StrategicPatch, body),
            };
            (Call { subresource, ..Call::new(verb, target, body) }, Care::Gone)
        }
        Op::Subresource { target, subresource, object } => {
            let verb = if matches!(subresource, "binding" | "eviction") { Verb::Post } else { Verb::Put };
            let care = if subresource == "binding" { Care::Bound(target.clone()) } else { Care::Nothing };
            (Call { subresource: Some(subresource), ..Call::new(verb, target, object) }, care)
        }
        Op::Delete { target, propagation, uid, resource_version, grace_secs } => {
            let options = delete_options(propagation, uid, resource_version, grace_secs);
            (Call::new(Verb::Delete, target, options), Care::Gone)
        }
        Op::DeleteCollection { gvk, namespace } => {
            let options = delete_options(Propagation::Background, None, None, None);
            (Call::new(Verb::Delete, Target { gvk, key: Key::new(&namespace, "") }, options), Care::Nothing)
        }
        Op::Absent { target, uid } => (Call::new(Verb::Get, target, Value::Null), Care::Absent { uid }),
    }
}

fn delete_options(
    propagation: Propagation,
    uid: Option<String>,
    resource_version: Option<String>,
    grace_secs: Option<i64>,
) -> Value {
    let policy = match propagation {
        Propagation::Background => "Background",
        Propagation::Foreground => "Foreground",
        Propagation::Orphan => "Orphan",
    };
    let mut options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": policy});
    let mut preconditions = Map::new();
    for (name, value) in [("uid", uid), ("resourceVersion", resource_version)] {
        if let Some(value) = value {
            preconditions.insert(name.to_owned(), value.into());
        }
    }
    if !preconditions.is_empty() {
        options["preconditions"] = Value::Object(preconditions);
    }
    if let Some(secs) = grace_secs {
        options["gracePeriodSeconds"] = secs.into();
    }
    options
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{EventType, Generator};
    use api::object::Gvk;

    fn pod(name: &str) -> Value {
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "ns", "uid": name}})
    }

    fn event(reason: &str) -> Event {
        let message = "said: {error}".to_owned();
        Event {
            regarding: None,
            kind: EventType::Warning,
            reason: reason.to_owned(),
            message,
            reporter: "r",
            action: "",
        }
    }

    fn write(name: &str, on_error: OnError) -> Write {
        Write { op: Op::Create { object: pod(name) }, on_error, on_success: Some(event(name)) }
    }

    fn refusal(code: u16, reason: &str) -> Answer {
        Answer::Refused(Refusal {
            code,
            reason: reason.to_owned(),
            message: format!("{reason} it is"),
            ..Refusal::default()
        })
    }

    /// Answers the calls in order (all else is noted); what was asked for, in words, and the end.
    fn run(decision: Decision, answers: Vec<Answer>) -> (Vec<String>, Outcome) {
        let target = Target { gvk: Gvk::new("", "v1", "Pod"), key: Key::new("ns", "x") };
        let mut execution = Execution::new(target, decision);
        let (mut answers, mut said, mut answer) = (answers.into_iter(), Vec::new(), None);
        loop {
            answer = Some(match execution.step(answer) {
                Step::End(outcome) => {
                    assert_eq!(execution.step(None), Step::End(outcome.clone()), "it stays at its end");
                    return (said, outcome);
                }
                Step::Ask(Request::Call(call)) => {
                    said.push(format!("{} {}{}", call.method(), call.target.key.name, call.tail()));
                    answers.next().unwrap_or(Answer::Accepted(Arc::default()))
                }
                Step::Ask(Request::Draw) => {
                    said.push("draw".to_owned());
                    Answer::Drawn([7; _])
                }
                Step::Ask(Request::Show(object)) => {
                    said.push(format!("show {}", object::meta(&object, "name")));
                    Answer::Noted
                }
                Step::Ask(Request::Record(event)) => {
                    said.push(format!("{}: {}", event.reason, event.message));
                    Answer::Noted
                }
            });
        }
    }

    fn decision(writes: Vec<Write>) -> Decision {
        let status = Some(StatusWrite::Merge(json!({"status": {}})));
        Decision { writes, status, events: vec![event("end")], ..Decision::default() }
    }

    #[test]
    fn writes_then_status_then_events() {
        let done = run(decision(vec![write("a", OnError::Stop)]), vec![Answer::Accepted(Arc::new(pod("a")))]);
        let said = ["POST ", "show a", "a: said: {error}", "PATCH x/status", "end: said: {error}"];
        assert_eq!(done, (said.map(str::to_owned).to_vec(), Outcome::Done));
    }

    #[test]
    fn what_is_there_or_gone_already_is_done_without_its_event() {
        let delete = Op::Delete {
            target: Target::of(&pod("b")),
            propagation: Propagation::Background,
            uid: Some("b".to_owned()),
            resource_version: None,
            grace_secs: None,
        };
        let writes = vec![write("a", OnError::Stop), delete.into()];
        let answers = vec![refusal(409, "AlreadyExists"), refusal(404, "NotFound")];
        let (said, outcome) = run(decision(writes), answers);
        assert_eq!(said, ["POST ", "DELETE b", "PATCH x/status", "end: said: {error}"]);
        assert_eq!(outcome, Outcome::Done);
    }

    #[test]
    fn a_conflict_ends_it_without_a_word() {
        let writes = vec![write("a", OnError::EventThenStop(event("no"))), write("b", OnError::Stop)];
        assert_eq!(run(decision(writes), vec![refusal(409, "Conflict")]), (vec!["POST ".to_owned()], Outcome::Again));
        let status = run(decision(vec![]), vec![refusal(409, "Conflict")]);
        assert_eq!(status, (vec!["PATCH x/status".to_owned()], Outcome::Again));
        let absent = Op::Absent { target: Target::of(&pod("c")), uid: "c".to_owned() };
        let still_there = run(decision(vec![absent.clone().into()]), vec![Answer::Accepted(Arc::new(pod("c")))]);
        assert_eq!(still_there, (vec!["GET c".to_owned()], Outcome::Again));
        let made_again =
            run(decision(vec![absent.into()]), vec![Answer::Accepted(Arc::new(json!({"metadata": {"uid": "d"}})))]);
        assert_eq!(made_again.1, Outcome::Done);
    }

    #[test]
    fn a_refusal_does_what_the_write_says() {
        let told =
            |on_error, answer| run(decision(vec![write("a", on_error), write("b", OnError::Stop)]), vec![answer]);
        let no = || event("no");
        let (said, outcome) = told(OnError::EventThenStop(no()), refusal(403, "Forbidden"));
        assert_eq!(said, ["POST ", "no: said: Forbidden it is"]);
        assert_eq!(outcome, Outcome::Failed(vec!["Forbidden it is".to_owned()], Fate::Retry));
        let (said, outcome) = told(OnError::EventThenContinue(no()), refusal(422, "Invalid"));
        assert_eq!(
            said,
            ["POST ", "no: said: Invalid it is", "POST ", "b: said: {error}", "PATCH x/status", "end: said: {error}"]
        );
        assert_eq!(outcome, Outcome::Failed(vec!["Invalid it is".to_owned()], Fate::AwaitChange));
        let status = StatusWrite::Merge(json!({"status": {"message": "{error}"}}));
        let (said, outcome) = told(OnError::EventThenStatus(no(), status), refusal(422, "Invalid"));
        assert_eq!(said, ["POST ", "no: said: Invalid it is", "PATCH x/status"]);
        assert_eq!(outcome, Outcome::Failed(vec!["Invalid it is".to_owned()], Fate::AwaitChange));
    }

    #[test]
    fn a_refusal_takes_the_status_that_counts_what_was_to_be_made() {
        let decided = |status| Decision {
            after_refusal: AfterRefusal::Other(status),
            ..decision(vec![write("a", OnError::EventThenContinue(event("no")))])
        };
        let other = || Some(StatusWrite::Replace(json!({"status": {"made": 0}})));
        let asked = |decided, answer| run(decided, vec![answer]).0;
        let made = asked(decided(other()), Answer::Accepted(Arc::new(pod("a"))));
        assert!(made.contains(&"PATCH x/status".to_owned()), "{made:?}");
        let refused = asked(decided(other()), refusal(403, "Forbidden"));
        assert_eq!(refused, ["POST ", "no: said: Forbidden it is", "PUT x/status", "end: said: {error}"]);
        let nothing_to_say = asked(decided(None), refusal(403, "Forbidden"));
        assert_eq!(nothing_to_say, ["POST ", "no: said: Forbidden it is", "end: said: {error}"]);
    }

    #[test]
    fn a_batch_follows_one_that_went_well() {
        let in_batch = |(name, batch)| write(name, OnError::EventThenSkip(event("no"), batch));
        let writes = |rest| {
            let mut writes: Vec<Write> = [("a", 0), ("b", 1), ("c", 1), ("d", 2)].map(in_batch).into();
            writes.push(write("e", rest));
            decision(writes)
        };
        let made = || Answer::Accepted(Arc::new(pod("a")));
        let (said, outcome) =
            run(writes(OnError::Stop), vec![made(), refusal(403, "Forbidden"), made(), made(), made()]);
        let tried = said.iter().filter(|line| line.starts_with("POST")).count();
        assert_eq!((tried, said.contains(&"PATCH x/status".to_owned())), (4, true), "{said:?}");
        assert_eq!(outcome, Outcome::Failed(vec!["Forbidden it is".to_owned()], Fate::Retry));
    }

    #[test]
    fn one_failure_that_may_pass_is_hope() {
        let writes = vec![write("a", OnError::Continue), write("b", OnError::Continue), write("c", OnError::Stop)];
        let answers = vec![refusal(422, "Invalid"), refusal(0, ""), refusal(422, "Invalid")];
        let Outcome::Failed(failures, fate) = run(decision(writes), answers).1 else { panic!("it failed") };
        assert_eq!((failures.len(), fate), (3, Fate::Retry));
    }

    #[test]
    fn a_server_that_asks_for_patience_is_left_alone() {
        let busy = |seconds| {
            let retry_after = Some(Duration::from_secs(seconds));
            Answer::Refused(Refusal { code: 429, retry_after, ..Refusal::default() })
        };
        let writes = || ["a", "b", "c"].map(|name| write(name, OnError::Continue)).to_vec();
        let fate = |answers| match run(decision(writes()), answers).1 {
            Outcome::Failed(_, fate) => fate,
            other => panic!("{other:?}"),
        };
        let later = |seconds| Fate::Later(Duration::from_secs(seconds));
        assert_eq!(fate(vec![busy(1), busy(7), refusal(422, "Invalid")]), later(7));
        assert_eq!(fate(vec![refusal(422, "Invalid"), refusal(500, ""), busy(2)]), later(2));
    }

    #[test]
    fn a_status_of_what_is_gone_is_no_failure() {
        assert_eq!(run(decision(vec![]), vec![refusal(404, "NotFound")]).1, Outcome::Done);
        assert!(matches!(run(decision(vec![]), vec![refusal(500, "InternalError")]).1, Outcome::Failed(..)));
    }

    #[test]
    fn what_may_be_written_is_told() {
        let told = |answer| {
            let (said, outcome) = run(decision(vec![]), vec![answer]);
            assert_eq!((said.first().map(String::as_str), outcome.clone()), (Some("PATCH x/status"), outcome.clone()));
            assert!(matches!(outcome, Outcome::Failed(..)), "{outcome:?}");
            said.len() > 1 && said.ends_with(&["end: said: {error}".to_owned()])
        };
        assert!(told(refusal(0, "")), "no answer came");
        assert!(told(refusal(504, "Timeout")), "it may have been done since");
        assert!(!told(refusal(403, "Forbidden")), "it was not done");
        let busy = Refusal { code: 503, retry_after: Some(Duration::from_secs(1)), ..Refusal::default() };
        assert!(!told(Answer::Refused(busy)), "it was not tried");
    }

    #[test]
    fn keys_are_drawn_before_the_object_is_made() {
        let op = Op::CreateGenerated { object: pod("a"), generator: Generator::CurveKeyPair };
        let there = || refusal(409, "AlreadyExists");
        let (said, outcome) = run(decision(vec![op.into()]), vec![there()]);
        assert_eq!(said, ["draw", "POST ", "PATCH x/status", "end: said: {error}"]);
        assert_eq!(outcome, Outcome::Done, "an object that is there keeps its keys");
        let op = Op::UpdateGenerated { object: pod("a"), generator: Generator::CurveKeyPair };
        let (said, outcome) = run(decision(vec![op.into()]), vec![]);
        assert_eq!(said, ["draw", "PUT a", "PATCH x/status", "end: said: {error}"]);
        assert_eq!(outcome, Outcome::Done);
    }

    #[test]
    fn a_pod_that_gets_a_node_is_looked_at() {
        let op = || Op::Subresource { target: Target::of(&pod("a")), subresource: "binding", object: Value::Null };
        let decided = || Decision { writes: vec![op().into()], ..Decision::default() };
        let told = run(
            decided(),
            vec![Answer::Accepted(Arc::new(json!({"status": "Success"}))), Answer::Accepted(Arc::new(pod("a")))],
        );
        assert_eq!(told, (["POST a/binding", "GET a", "show a"].map(str::to_owned).to_vec(), Outcome::Done));
        let lost = run(decided(), vec![refusal(0, ""), Answer::Accepted(Arc::new(pod("a")))]);
        assert_eq!(lost.0, ["POST a/binding", "GET a", "show a"]);
        assert!(matches!(lost.1, Outcome::Failed(_, Fate::Retry)));
        assert_eq!(run(decided(), vec![refusal(409, "Conflict"), refusal(404, "NotFound")]).1, Outcome::Again);
    }

    #[test]
    fn a_made_name_is_called_by_its_prefix() {
        let mut made = pod("a-x7k2p");
        made["metadata"]["generateName"] = "a-".into();
        let write = Write { op: Op::Create { object: made }, on_error: OnError::Stop, on_success: None };
        let message = "pods \"a-x7k2p\" is forbidden".to_owned();
        let answer =
            Answer::Refused(Refusal { code: 403, reason: "Forbidden".to_owned(), message, ..Refusal::default() });
        let expected = Outcome::Failed(vec!["pods \"a-\" is forbidden".to_owned()], Fate::Retry);
        assert_eq!(run(decision(vec![write]), vec![answer]).1, expected);
    }
}
