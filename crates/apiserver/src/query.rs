//! Query strings, read as Go reads them, and the options of the API that they carry.

use crate::field_selector::FieldSelector;
use api::field::{Error, ErrorList, Path};
use objects::selector::{Selector, Signs};
use resource::admission::Operation;
use resource::status::Status;
use serde_json::{Map, Value};

/// The pairs of a query string, in order, decoded. `+` is a space; pairs that do not decode are dropped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query(Vec<(String, String)>);

impl Query {
    pub fn parse(raw: &str) -> Self {
        let pairs = raw.split('&').filter(|pair| !pair.is_empty() && !pair.contains(';')).filter_map(|pair| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            Some((unescape(key, true)?, unescape(value, true)?))
        });
        Self(pairs.collect())
    }

    /// The first value of a key.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.iter().find(|(k, _)| k == key).map(|(_, v)| v.as_str())
    }

    /// The first value, empty where there is none.
    pub fn text(&self, key: &str) -> &str {
        self.get(key).unwrap_or_default()
    }

    pub fn all<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(k, _)| k == key).map(|(_, v)| v.as_str())
    }

    /// Absent, `0` and `false` in any case are false; all else, also empty, is true.
    pub fn flag(&self, key: &str) -> bool {
        self.get(key).is_some_and(|v| v != "0" && !v.eq_ignore_ascii_case("false"))
    }

    /// A whole number. Go's words where it is none.
    pub fn int(&self, key: &str) -> Result<Option<i64>, Status> {
        match self.get(key) {
            None => Ok(None),
            // an empty text is no number, as upstream
            Some(text) => merge::gotext::int(text).map(Some).map_err(|why| Status::bad_request(why.to_string())),
        }
    }
}

/// Percent-decodes; `None` for broken escapes and for what is not UTF-8.
pub fn unescape(text: &str, plus: bool) -> Option<String> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        match byte {
            b'+' if plus => out.push(b' '),
            b'%' => {
                let (high, low) = (bytes.next()?, bytes.next()?);
                let digit = |b: u8| (b as char).to_digit(16);
                out.push(u8::try_from(digit(high)? * 16 + digit(low)?).ok()?);
            }
            byte => out.push(byte),
        }
    }
    String::from_utf8(out).ok()
}

/// A Go duration (`1m30s`, `1.5h`) in seconds.
pub fn duration(text: &str) -> Option<f64> {
    let (sign, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (-1.0, rest),
        None => (1.0, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Some(0.0);
    }
    if rest.is_empty() {
        return None;
    }
    let mut total = 0.0;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let number: f64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let unit = rest.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(rest.len());
        total += number
            * match &rest[..unit] {
                "ns" => 1e-9,
                "us" | "µs" | "μs" => 1e-6,
                "ms" => 1e-3,
                "s" => 1.0,
                "m" => 60.0,
                "h" => 3600.0,
                _ => return None,
            };
        rest = &rest[unit..];
    }
    Some(sign * total)
}

/// How a list or watch relates to the revision it names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VersionMatch {
    NotOlderThan,
    Exact,
}

/// `ListOptions`.
#[derive(Clone, Debug)]
pub struct ListOptions {
    pub labels: Selector,
    pub fields: FieldSelector,
    pub watch: bool,
    pub bookmarks: bool,
    /// Empty: unset.
    pub resource_version: String,
    pub version_match: Option<VersionMatch>,
    pub send_initial_events: Option<bool>,
    pub limit: usize,
    pub continue_token: String,
    pub timeout_secs: Option<i64>,
}

impl ListOptions {
    /// Reads and validates the options of a list, watch or deletecollection.
    ///
    /// # Errors
    /// 400 for what does not parse, 422 for what does not go together.
    pub fn parse(query: &Query) -> Result<Self, Status> {
        // numbers are read before selectors are
        let (timeout_secs, limit) = (query.int("timeoutSeconds")?, query.int("limit")?);
        let labels = Selector::parse(query.text("labelSelector")).map_err(Status::bad_request)?;
        let fields =
            FieldSelector::parse(query.text("fieldSelector")).map_err(|why| Status::bad_request(why.to_string()))?;
        let version_match = query.get("resourceVersionMatch").filter(|m| !m.is_empty());
        let options = Self {
            labels,
            fields,
            watch: query.flag("watch"),
            bookmarks: query.flag("allowWatchBookmarks"),
            resource_version: query.text("resourceVersion").to_owned(),
            version_match: match version_match {
                Some("Exact") => Some(VersionMatch::Exact),
                Some(_) => Some(VersionMatch::NotOlderThan),
                None => None,
            },
            send_initial_events: query.get("sendInitialEvents").map(|_| query.flag("sendInitialEvents")),
            limit: usize::try_from(limit.unwrap_or(0)).unwrap_or(0),
            continue_token: query.text("continue").to_owned(),
            timeout_secs,
        };
        let errors = options.faults(version_match);
        if errors.is_empty() { Ok(options) } else { Err(Status::invalid("meta.k8s.io", "ListOptions", "", &errors)) }
    }

    /// Texts that tell without reading a stored object that it is not asked for.
    pub(crate) fn signs(&self) -> Signs {
        let mut signs = self.labels.signs();
        self.fields.add_signs(&mut signs);
        signs
    }

    fn faults(&self, version_match: Option<&str>) -> ErrorList {
        let mut errors = ErrorList::new();
        let match_path = Path::new("resourceVersionMatch");
        let initial_path = Path::new("sendInitialEvents");
        if self.watch {
            if self.send_initial_events.is_some() && version_match != Some("NotOlderThan") {
                errors.push(Error::forbidden(
                    &match_path,
                    "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
                ));
            }
            let continues =
                || Error::forbidden(&match_path, "resourceVersionMatch is forbidden when continue is provided");
            // A watch from now on counts as one that asks for initial events, which have a match.
            if version_match.is_none()
                && self.send_initial_events.is_none()
                && matches!(self.resource_version.as_str(), "" | "0")
                && !self.continue_token.is_empty()
            {
                errors.push(continues());
            }
            if let Some(text) = version_match {
                if self.send_initial_events.is_none() {
                    errors.push(Error::forbidden(
                        &match_path,
                        "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
                    ));
                }
                if text != "NotOlderThan" {
                    errors.push(Error::not_supported(&match_path, text, &["NotOlderThan"]));
                }
                if !self.continue_token.is_empty() {
                    errors.push(continues());
                }
            }
            return errors;
        }
        if self.send_initial_events.is_some() {
            errors.push(Error::forbidden(&initial_path, "sendInitialEvents is forbidden for list"));
        }
        if let Some(text) = version_match {
            if self.resource_version.is_empty() {
                errors.push(Error::forbidden(
                    &match_path,
                    "resourceVersionMatch is forbidden unless resourceVersion is provided",
                ));
            }
            if !self.continue_token.is_empty() {
                errors
                    .push(Error::forbidden(&match_path, "resourceVersionMatch is forbidden when continue is provided"));
            }
            if !matches!(text, "Exact" | "NotOlderThan") {
                errors.push(Error::not_supported(&match_path, text, &["Exact", "NotOlderThan", ""]));
            }
            if text == "Exact" && self.resource_version == "0" {
                errors.push(Error::forbidden(
                    &match_path,
                    "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
                ));
            }
        }
        errors
    }
}

/// What to do about fields that the schema does not know and about fields given twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldValidation {
    Ignore,
    Warn,
    Strict,
}

/// The options of a write.
#[derive(Clone, Debug)]
pub struct WriteOptions {
    pub dry_run: bool,
    /// Never empty: falls back to the client's name.
    pub manager: String,
    pub validation: FieldValidation,
    /// Apply only.
    pub force: bool,
    /// What the client gave, by the names of the fields of `CreateOptions`.
    given: Map<String, Value>,
}

/// How a request was asked for, as admission is told of it.
#[derive(Clone, Copy, Debug)]
pub struct Manner<'a> {
    pub dry_run: bool,
    /// The kind of the request's options and the fields that the client gave; `None` of a request that has none.
    pub given: Option<(&'static str, &'a Map<String, Value>)>,
}

impl Manner<'_> {
    /// The options, as an object; null of a request that has none.
    pub fn options(&self) -> Value {
        let Some((kind, given)) = self.given else { return Value::Null };
        let mut options = given.clone();
        options.insert("kind".to_owned(), kind.into());
        options.insert("apiVersion".to_owned(), "meta.k8s.io/v1".into());
        Value::Object(options)
    }
}

impl WriteOptions {
    /// Reads and validates `CreateOptions`, `UpdateOptions` or `PatchOptions` (`kind`). `agent` is the User-Agent.
    ///
    /// # Errors
    /// 422 for values that are not known or not allowed.
    pub fn parse(query: &Query, kind: &str, agent: &str, apply: bool) -> Result<Self, Status> {
        let mut errors = ErrorList::new();
        let manager = query.text("fieldManager");
        if kind == "PatchOptions" {
            if apply && manager.is_empty() {
                errors.push(Error::required(&Path::new("fieldManager"), "is required for apply patch"));
            }
            if !apply && query.get("force").is_some() {
                errors.push(Error::forbidden(&Path::new("force"), "may not be specified for non-apply patch"));
            }
        }
        manager_faults(manager, &mut errors);
        let dry_run = dry_run(query.all("dryRun"), &mut errors);
        let validation = match query.text("fieldValidation") {
            "" | "Warn" => FieldValidation::Warn,
            "Ignore" => FieldValidation::Ignore,
            "Strict" => FieldValidation::Strict,
            other => {
                errors.push(Error::not_supported(
                    &Path::new("fieldValidation"),
                    other,
                    &["", "Ignore", "Strict", "Warn"],
                ));
                FieldValidation::Ignore
            }
        };
        if !errors.is_empty() {
            return Err(Status::invalid("meta.k8s.io", kind, "", &errors));
        }
        let mut given = Map::new();
        for field in ["fieldManager", "fieldValidation"] {
            if !query.text(field).is_empty() {
                given.insert(field.to_owned(), query.text(field).into());
            }
        }
        if dry_run {
            given.insert("dryRun".to_owned(), query.all("dryRun").collect());
        }
        let manager = if manager.is_empty() { client_name(agent) } else { manager };
        Ok(Self { dry_run, manager: manager.to_owned(), validation, force: query.flag("force"), given })
    }

    /// As admission is told of them: a patch is an update, or makes the object.
    pub fn manner(&self, operation: Operation) -> Manner<'_> {
        let kind = if operation == Operation::Create { "CreateOptions" } else { "UpdateOptions" };
        Manner { dry_run: self.dry_run, given: Some((kind, &self.given)) }
    }
}

/// The manager of fields that a client writes without naming a manager: its User-Agent up to the slash.
fn client_name(agent: &str) -> &str {
    let name = agent.split('/').next().unwrap_or_default();
    let end = name.char_indices().nth(128).map_or(name.len(), |(at, _)| at);
    if name.is_empty() { "unknown" } else { &name[..end] }
}

/// Faults of a field manager's name, at `fieldManager`.
pub fn manager_faults(manager: &str, errors: &mut ErrorList) {
    let path = Path::new("fieldManager");
    if manager.len() > 128 {
        errors.push(Error::too_long(&path, 128));
    }
    for (i, c) in manager.char_indices() {
        if c.is_control() {
            errors.push(Error::invalid(
                &path,
                manager,
                format!("invalid character U+{:04X} (at position {i})", u32::from(c)),
            ));
        }
    }
}

/// Reads `dryRun`; only `All`, once or more, is known.
pub fn dry_run<'a>(values: impl Iterator<Item = &'a str>, errors: &mut ErrorList) -> bool {
    let values: Vec<&str> = values.collect();
    let unknown = values.iter().any(|v| *v != "All");
    if unknown {
        let path = Path::new("dryRun");
        errors.push(Error::not_supported(&path, serde_json::json!(values), &["All"]));
    }
    !values.is_empty() && !unknown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_queries_as_go_does() {
        let query = Query::parse("&labelSelector=x+in+(a,%20b)&&follow=True&stdin=False&bad=%zz&empty&n=5");
        assert_eq!(query.text("labelSelector"), "x in (a, b)");
        assert!(query.flag("follow") && !query.flag("stdin") && query.flag("empty") && !query.flag("none"));
        assert_eq!(query.get("bad"), None);
        assert_eq!(query.int("n").unwrap(), Some(5));
    }

    #[test]
    fn durations() {
        for (text, seconds) in
            [("10s", Some(10.0)), ("1m30s", Some(90.0)), ("1.5h", Some(5400.0)), ("ten", None), ("", None), ("5", None)]
        {
            assert_eq!(duration(text), seconds, "{text}");
        }
    }
}
