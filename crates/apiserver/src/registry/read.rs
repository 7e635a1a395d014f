//! Reads one object, or a page of a list.

use super::{Core, Object, Target};
use crate::field_selector::FieldSelector;
use crate::query::{ListOptions, VersionMatch};
use crate::registry::Served;
use base64::Engine as _;
use base64::alphabet::URL_SAFE as URL_SAFE_ALPHABET;
use base64::engine::general_purpose::{GeneralPurpose, NO_PAD, URL_SAFE_NO_PAD};
use objects::selector::Signs;
use resource::status::{Cause, Status};
use serde_json::{Value, json};
use std::sync::Arc;
use store::{Entry, Key, Revision, Snapshot};

/// A page of a list.
pub struct ListAnswer {
    pub items: Vec<Object>,
    pub revision: Revision,
    /// Empty on the last page.
    pub continue_token: String,
    /// How many more there are; unknown under a selector.
    pub remaining: Option<usize>,
}

impl Served {
    /// The value of a field that field selectors may name.
    pub(crate) fn field(&self, object: &Value, name: &str) -> Option<String> {
        match name {
            "metadata.name" => Some(api::object::meta(object, "name").to_owned()),
            "metadata.namespace" => Some(api::object::meta(object, "namespace").to_owned()),
            _ => match &self.custom {
                Some(custom) => custom.selectable.iter().any(|s| s == name).then(|| crate::crd::selected(object, name)),
                None => {
                    let fields = self.resource.strategy.selectable(object);
                    fields.into_iter().find(|(field, _)| *field == name).map(|(_, value)| value)
                }
            },
        }
    }

    /// # Errors
    /// 400 for a field that the kind cannot be selected by.
    pub(crate) fn check_fields(&self, fields: &FieldSelector) -> Result<(), Status> {
        for term in &fields.0 {
            let known = matches!(term.field.as_str(), "metadata.name" | "metadata.namespace")
                || self.field(&Value::Null, &term.field).is_some();
            if !known {
                let field = &term.field;
                return Err(Status::bad_request(match self.custom {
                    Some(_) => format!("field label not supported: {field}"),
                    None => self.unknown_field(field),
                }));
            }
        }
        Ok(())
    }

    /// The refusal of a field of a field selector by which a built-in kind cannot be selected.
    fn unknown_field(&self, field: &str) -> String {
        match self.resource.facts.selected_as {
            Some(kind) => format!("field label {field:?} not supported for {kind}"),
            None if self.resource.strategy.selectable(&Value::Null).is_empty() => {
                format!("\"{field}\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"")
            }
            None => format!("field label not supported: {field}"),
        }
    }

    /// As [`Served::selects`]; of a stored object no more is read than the selectors ask for. `signs`: those of the options.
    pub(crate) fn selects_object(&self, options: &ListOptions, signs: &Signs, object: &Object) -> bool {
        let Object::Stored(entry) = object else { return self.selects(options, &object.glance()) };
        let by_labels = || options.labels.is_empty() || options.labels.selects(&entry.object.labelled());
        signs.are_in(&entry.bytes())
            && by_labels()
            && (options.fields.is_empty() || {
                let tree = entry.object.scalars();
                options.fields.matches(|field| self.field(&tree, field))
            })
    }

    pub(crate) fn selects(&self, options: &ListOptions, object: &Value) -> bool {
        options.labels.selects(object) && options.fields.matches(|field| self.field(object, field))
    }
}

/// As Go decodes: bits after the last whole byte are not looked at.
const GO_URL_SAFE_NO_PAD: GeneralPurpose =
    GeneralPurpose::new(&URL_SAFE_ALPHABET, NO_PAD.with_decode_allow_trailing_bits(true));

/// What a continue token holds; the layout is upstream's.
struct Position {
    revision: i64,
    start: Key,
}

impl Position {
    fn encode(&self, namespaced_list: bool) -> String {
        let start = if namespaced_list || self.start.namespace.is_empty() {
            format!("{}\0", self.start.name)
        } else {
            format!("{}/{}\0", self.start.namespace, self.start.name)
        };
        let token = json!({"v": "meta.k8s.io/v1", "rv": self.revision, "start": start});
        URL_SAFE_NO_PAD.encode(token.to_string())
    }

    fn decode(token: &str, namespace: &str, cluster_scoped: bool) -> Result<Self, Status> {
        let bad = |why: &str| Status::bad_request(format!("invalid continue token: continue key is not valid: {why}"));
        let bytes = GO_URL_SAFE_NO_PAD.decode(token).map_err(|error| {
            let at = match error {
                base64::DecodeError::InvalidByte(at, _) | base64::DecodeError::InvalidLastSymbol(at, _) => at,
                // a group of four that has one character alone
                _ => token.len().saturating_sub(token.len() % 4),
            };
            bad(&format!("illegal base64 data at input byte {at}"))
        })?;
        let value: Value = crate::decode::json(&bytes).map_err(|why| bad(&why.to_string()))?.0;
        let version = api::object::text(&value, "v");
        if version != "meta.k8s.io/v1" {
            return Err(bad(&format!("server does not recognize this encoded version {version}")));
        }
        let revision = value.get("rv").and_then(Value::as_i64).unwrap_or(0);
        if revision == 0 {
            return Err(bad("incorrect encoded start resourceVersion (version meta.k8s.io/v1)"));
        }
        let start = api::object::text(&value, "start");
        if start.is_empty() {
            return Err(bad("encoded start key empty (version meta.k8s.io/v1)"));
        }
        let start = start.strip_suffix('\0').unwrap_or(start);
        let start = match start.split_once('/') {
            Some((namespace, name)) => Key::new(namespace, name),
            None if cluster_scoped => Key::new("", start),
            None => Key::new(namespace, start),
        };
        Ok(Self { revision, start })
    }
}

const EXPIRED: &str = "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided token results in an inconsistent list - objects that were created, modified, or deleted between the time the first chunk was returned and now may show up in the list.";

impl Core {
    /// The entry a request points to.
    pub(crate) fn entry(&self, target: &Target) -> Option<Arc<Entry>> {
        self.store.get(&target.served.bucket, &target.key())
    }

    /// One object.
    ///
    /// # Errors
    /// 404.
    pub fn get(&self, target: &Target) -> Result<Object, Status> {
        self.entry(target).map(|entry| target.served.present(&entry)).ok_or_else(|| not_found(target))
    }

    /// A page of the objects of a kind, in one namespace or all.
    ///
    /// # Errors
    /// 400 for tokens, versions and fields that do not parse, 410 for versions that the store has forgotten, 504 for
    /// versions of the future.
    pub fn list(&self, target: &Target, options: &ListOptions) -> Result<ListAnswer, Status> {
        let served = &target.served;
        served.check_fields(&options.fields)?;
        keyed(target)?;
        let namespace = (!target.namespace.is_empty()).then_some(target.namespace.as_str());
        if let Some(key) = only(target, options) {
            return self.list_only(target, options, &key);
        }
        let (snapshot, after) = self.snapshot(target, options)?;
        // A list at "any" revision comes from upstream's cache, which knows no pages.
        let whole = options.limit == 0 || options.resource_version == "0";
        let limit = if whole { usize::MAX } else { options.limit };
        let selective = !options.labels.is_empty() || !options.fields.is_empty();
        let signs = options.signs();
        let mut items = Vec::new();
        let mut last: Option<&Arc<Entry>> = None;
        let mut entries = snapshot.iter(namespace, after.as_ref());
        for entry in entries.by_ref() {
            last = Some(entry);
            let object = served.present(entry);
            if !selective || served.selects_object(options, &signs, &object) {
                items.push(object);
                if items.len() == limit {
                    break;
                }
            }
        }
        let mut answer =
            ListAnswer { items, revision: snapshot.revision, continue_token: String::new(), remaining: None };
        if answer.items.len() == limit
            && let Some(last) = last
        {
            // whether any of the rest is selected is not looked at
            let more = if selective {
                entries.next().is_some()
            } else {
                let rest = entries.count();
                answer.remaining = (rest > 0).then_some(rest);
                rest > 0
            };
            if more {
                let position = Position { revision: snapshot.revision.cast_signed(), start: last.key.clone() };
                answer.continue_token = position.encode(namespace.is_some());
            }
        }
        Ok(answer)
    }

    /// A list of one object at most, which is read without walking the bucket. Upstream reads a single key for it: a continue
    /// token is not looked at, and with a limit `resourceVersion` is the oldest version that may be shown, as without one.
    fn list_only(&self, target: &Target, options: &ListOptions, key: &Key) -> Result<ListAnswer, Status> {
        let (served, bucket) = (&target.served, &target.served.bucket);
        let revision = asked_revision(options)?;
        let current = self.store.revision();
        let is_exact = options.version_match == Some(VersionMatch::Exact);
        if revision > current {
            // upstream's cache does not take part in these
            let is_page = options.limit > 0 || !options.continue_token.is_empty();
            let is_direct = is_exact || (options.version_match.is_none() && is_page);
            let again = !is_direct && served.resource.facts.cached;
            return Err(too_large(revision, current, again.then_some(1)));
        }
        let snapshot = match is_exact && revision > 0 {
            true => self.store.snapshot_at(bucket, revision).map_err(|_| too_old())?,
            false => self.store.snapshot(bucket),
        };
        let object = snapshot.get(key).map(|entry| served.present(entry));
        let selected = object.filter(|object| served.selects_object(options, &options.signs(), object));
        let (items, revision) = (selected.into_iter().collect(), snapshot.revision);
        Ok(ListAnswer { items, revision, continue_token: String::new(), remaining: None })
    }

    fn snapshot(&self, target: &Target, options: &ListOptions) -> Result<(Snapshot, Option<Key>), Status> {
        let bucket = &target.served.bucket;
        if !options.continue_token.is_empty() {
            let position =
                Position::decode(&options.continue_token, &target.namespace, !target.served.resource.namespaced)?;
            if !matches!(options.resource_version.as_str(), "" | "0") {
                return Err(Status::bad_request("specifying resource version is not allowed when using continue"));
            }
            if position.revision < 0 {
                return Ok((self.store.snapshot(bucket), Some(position.start)));
            }
            return match self.store.snapshot_at(bucket, position.revision.cast_unsigned()) {
                Ok(snapshot) => Ok((snapshot, Some(position.start))),
                Err(_) => {
                    let mut status = Status::new(410, "Expired", EXPIRED);
                    let again = Position { revision: -1, start: position.start };
                    status.list_meta = Some(again.encode(!target.namespace.is_empty()));
                    Err(status)
                }
            };
        }
        let revision = asked_revision(options)?;
        if revision > 0 {
            let current = self.store.revision();
            if revision > current {
                let cached = target.served.resource.facts.cached;
                return Err(too_large(revision, current, cached.then_some(1)));
            }
            let exact = options.version_match == Some(VersionMatch::Exact)
                || (options.version_match.is_none() && options.limit > 0);
            if exact {
                let snapshot = self.store.snapshot_at(bucket, revision);
                return snapshot.map(|snapshot| (snapshot, None)).map_err(|_| too_old());
            }
        }
        Ok((self.store.snapshot(bucket), None))
    }
}

pub(crate) fn not_found(target: &Target) -> Status {
    if let Err(status) = keyed(target) {
        return status;
    }
    Status::not_found(&target.served.resource.group, &target.served.resource.plural, &target.name)
}

/// Whether there is a place for what a path names: upstream keeps objects under paths of their names, in which some mean something.
///
/// # Errors
/// 400 for such a name, 500 for such a namespace.
pub(crate) fn keyed(target: &Target) -> Result<(), Status> {
    let Target { namespace, name, .. } = target;
    let faults = api::names::path_segment_faults(name, false);
    if !faults.is_empty() {
        return Err(Status::bad_request(format!("Name parameter invalid: {name:?}: {}", faults.join(";"))));
    }
    if matches!(namespace.as_str(), "." | "..") {
        let key = super::write::registry_key(target, true);
        return Err(Status::new(500, "", format!("invalid key: {key:?}")));
    }
    Ok(())
}

/// The key of the only object that a list can have: its name is asked for, and it is clear in which namespace.
fn only(target: &Target, options: &ListOptions) -> Option<Key> {
    let name = options.fields.pinned("metadata.name")?;
    (!target.namespace.is_empty() || !target.served.resource.namespaced).then(|| Key::new(&target.namespace, name))
}

fn asked_revision(options: &ListOptions) -> Result<Revision, Status> {
    parse_revision(&options.resource_version)
        .map_err(|why| Status::bad_request(format!("invalid resource version: {why}")))
}

fn too_old() -> Status {
    Status::new(410, "Expired", "The resourceVersion for the provided list is too old.")
}

/// A text that names no revision; what comes before its words and the status depend on the caller.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("resourceVersion: Invalid value: {}: {why}", merge::gotext::quoted(text))]
pub(crate) struct RevisionError {
    text: String,
    why: merge::gotext::NumberError,
}

/// 0 for an empty one.
///
/// # Errors
/// In Go's words; what comes before them and the status depend on the caller.
pub(crate) fn parse_revision(text: &str) -> Result<Revision, RevisionError> {
    if text.is_empty() {
        return Ok(0);
    }
    merge::gotext::uint(text).map_err(|why| RevisionError { text: text.to_owned(), why })
}

/// A version that is not there yet. `again`: after how many seconds the client is asked to come again, as a cache may lag behind.
pub(crate) fn too_large(asked: Revision, current: Revision, again: Option<u32>) -> Status {
    let message = format!("Timeout: Too large resource version: {asked}, current: {current}");
    let (reason, why) = ("ResourceVersionTooLarge", "Too large resource version".to_owned());
    Status {
        details: again.map(|secs| json!({"retryAfterSeconds": secs})),
        causes: vec![Cause { reason, message: why, ..Cause::default() }],
        ..Status::new(504, "Timeout", message)
    }
}
