//! What a TrainJob, or a runtime for its TrainJobs, asks for beyond upstream's API, out of annotations: values, defaults and
//! faults.
//!
//! A value that admission would refuse (upstream's webhook may have let it in) reads as absent.

use api::field::{Error, ErrorList, Path};
use api::object;
use api::trainer::annotations::{
    ASKED, ATTEMPT, FAILURE_POLICY, GANG, LIFECYCLE, METRICS, POD_SECURITY, PREFIX, RESTARTS, RETRIES, RETRY_AT,
    RETRY_BACKOFF, TOLD, TTL_SECONDS,
};
use api::trainer::printed::Patterns;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

/// Wait before the first retry where a TrainJob does not say; as a Job waits before it makes a pod anew.
const BACKOFF: SignedDuration = SignedDuration::from_secs(10);
/// Waits are doubled up to here, unless the first is longer.
const BACKOFF_MAX: SignedDuration = SignedDuration::from_hours(1);
/// Longest first wait that is admitted.
const BACKOFF_LIMIT: SignedDuration = SignedDuration::from_hours(24);
/// Most retries that are admitted.
const RETRIES_MAX: i64 = 1000;
/// Longest life after the end that is admitted: a hundred years, so that no sum leaves the calendar.
const TTL_MAX: i64 = 100 * 366 * 86_400;
/// Changed letters up to which an unknown key counts as misspelt; less in short ones, a third of their letters.
const TYPO_MAX: usize = 3;

/// The annotations of a TrainJob, parsed once.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Seconds from its end to its deletion; `None`: it stays.
    pub ttl_secs: Option<i64>,
    /// Further attempts after the first has failed.
    pub retries: i64,
    /// Wait before the first retry.
    pub backoff: SignedDuration,
    /// Whether conditions Created, Running and Restarting are kept.
    pub lifecycle: bool,
    /// Which pods make a gang.
    pub gang: GangScope,
    /// Whether pods are made to fit restricted Pod Security.
    pub restricted: bool,
    /// Whether the first process that fails ends the job.
    pub fail_fast: bool,
    /// The attempt that runs or is next, from 1.
    pub attempt: i64,
    /// Before which the next attempt does not start.
    pub retry_at: Option<Timestamp>,
    /// The count of restarts as it was written last.
    pub restarts: Option<i64>,
}

/// Which pods of a TrainJob are placed together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GangScope {
    /// All of them, as upstream has it.
    #[default]
    All,
    /// Those of replicated jobs that start at the same time.
    Stages,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            ttl_secs: None,
            retries: 0,
            backoff: BACKOFF,
            lifecycle: false,
            gang: GangScope::All,
            restricted: false,
            fail_fast: false,
            attempt: 1,
            retry_at: None,
            restarts: None,
        }
    }
}

impl Options {
    /// Reads the annotations of a TrainJob.
    pub fn of(object: &Value) -> Self {
        Self::under(object, &Value::Null)
    }

    /// The same, with those in the metadata of a runtime's template below them.
    pub fn under(object: &Value, template: &Value) -> Self {
        let below = |key: &str| ASKED.contains(&key).then(|| template["annotations"][key].as_str()).flatten();
        let get = |key: &str| object::annotation(object, key).or_else(|| below(key));
        let default = Self::default();
        Self {
            ttl_secs: get(TTL_SECONDS).and_then(|text| number(text, 0, TTL_MAX)),
            retries: get(RETRIES).and_then(|text| number(text, 0, RETRIES_MAX)).unwrap_or(default.retries),
            backoff: get(RETRY_BACKOFF).and_then(duration).unwrap_or(default.backoff),
            lifecycle: get(LIFECYCLE) == Some("true"),
            gang: if get(GANG) == Some("stages") { GangScope::Stages } else { GangScope::All },
            restricted: get(POD_SECURITY) == Some("restricted"),
            fail_fast: get(FAILURE_POLICY) == Some("fail-fast"),
            attempt: get(ATTEMPT).and_then(|text| number(text, 1, i64::MAX)).unwrap_or(default.attempt),
            retry_at: get(RETRY_AT).and_then(|text| text.parse().ok()),
            restarts: get(RESTARTS).and_then(|text| number(text, 0, i64::MAX)),
        }
    }

    /// The wait after the failure of an attempt: the first wait, doubled for each attempt before.
    pub fn wait_after(&self, attempt: i64) -> SignedDuration {
        let doublings = u32::try_from(attempt - 1).unwrap_or(0).min(20);
        let longest = BACKOFF_MAX.max(self.backoff);
        self.backoff.checked_mul(1 << doublings).map_or(longest, |wait| wait.min(longest))
    }
}

/// A whole number in decimal digits, within bounds.
fn number(text: &str, least: i64, most: i64) -> Option<i64> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|number| digits && (least..=most).contains(number))
}

/// `90s`, `5m`, `1h30m`: hours, minutes and seconds in this order, each at most once; a day at most.
fn duration(text: &str) -> Option<SignedDuration> {
    let mut rest = text;
    let mut total = SignedDuration::ZERO;
    for (unit, secs) in [('h', 3600), ('m', 60), ('s', 1)] {
        let Some((digits, tail)) = rest.split_once(unit) else { continue };
        let seconds = number(digits, 0, BACKOFF_LIMIT.as_secs())?.checked_mul(secs)?;
        total = total.checked_add(SignedDuration::from_secs(seconds))?;
        rest = tail;
    }
    (rest.is_empty() && !text.is_empty() && total <= BACKOFF_LIMIT).then_some(total)
}

/// Values that mean nothing. On update only those that are new: what another server has let in once blocks no one.
pub fn faults(new: &Value, old: Option<&Value>) -> ErrorList {
    let is_new = |key: &str, text: &str| old.is_none_or(|old| object::annotation(old, key) != Some(text));
    let told = ASKED.iter().chain(&TOLD).filter_map(|key| Some((*key, object::annotation(new, key)?)));
    let field = Path::new("metadata").child("annotations");
    let mut faults: ErrorList =
        told.filter(|(key, text)| is_new(key, text)).filter_map(|(key, text)| fault(&field, key, text)).collect();
    let suspended = |object: &Value| object.pointer("/spec/suspend") == Some(&Value::Bool(true));
    if let Some(old) = old
        && Options::of(old).gang != Options::of(new).gang
        && !suspended(old)
        && !suspended(new)
    {
        let detail = "can only be changed when the TrainJob is suspended before or after the update";
        faults.push(Error::forbidden(&field.key(GANG), detail));
    }
    faults
}

/// The same of a runtime, for what it asks in the name of its TrainJobs.
pub fn runtime_faults(new: &Value, old: Option<&Value>) -> ErrorList {
    let held = |runtime: &Value, key: &str| {
        let annotations = runtime.pointer("/spec/template/metadata/annotations")?;
        annotations.get(key)?.as_str().map(str::to_owned)
    };
    let asked = ASKED.iter().filter_map(|key| Some((*key, held(new, key)?)));
    let news = asked.filter(|(key, text)| old.is_none_or(|old| held(old, key).as_ref() != Some(text)));
    let field = Path::new("spec").child("template").child("metadata").child("annotations");
    news.filter_map(|(key, text)| match key {
        METRICS => {
            let detail = "only a TrainJob can have it: a runtime does not know what a script prints";
            Some(Error::forbidden(&field.key(METRICS), detail))
        }
        key => fault(&field, key, &text),
    })
    .collect()
}

fn fault(annotations: &Path, key: &str, text: &str) -> Option<Error> {
    let field = annotations.key(key);
    let invalid = |fine: bool, detail: String| (!fine).then(|| Error::invalid(&field, text, detail));
    let whole = |least: i64, most: i64| {
        let detail = match most {
            i64::MAX => format!("must be a whole number, {least} or more"),
            most => format!("must be a whole number from {least} to {most}"),
        };
        invalid(number(text, least, most).is_some(), detail)
    };
    let one_of = |values: &[&str]| (!values.contains(&text)).then(|| Error::not_supported(&field, text, values));
    match key {
        TTL_SECONDS => whole(0, TTL_MAX),
        RETRIES => whole(0, RETRIES_MAX),
        RETRY_BACKOFF => {
            invalid(duration(text).is_some(), "must be a duration of at most 24h, such as 30s, 5m or 1h30m".to_owned())
        }
        LIFECYCLE => one_of(&["true", "false"]),
        GANG => one_of(&["all", "stages"]),
        POD_SECURITY => one_of(&["restricted", "unchanged"]),
        FAILURE_POLICY => one_of(&["fail-fast", "unchanged"]),
        METRICS => Patterns::parse(text).err().map(|detail| Error::invalid(&field, text, detail)),
        ATTEMPT => whole(1, i64::MAX),
        RESTARTS => whole(0, i64::MAX),
        RETRY_AT => {
            invalid(text.parse::<Timestamp>().is_ok(), "must be a time, such as 2026-01-31T12:00:00Z".to_owned())
        }
        _ => None,
    }
}

/// Warnings about keys that look misspelt: an unknown annotation would do nothing, silently.
pub fn warnings(object: &Value) -> Vec<String> {
    let held = object.pointer("/metadata/annotations").and_then(Value::as_object);
    let unknown = held
        .into_iter()
        .flatten()
        .map(|(key, _)| key.as_str())
        .filter(|key| key.starts_with(PREFIX) && !ASKED.contains(key) && !TOLD.contains(key));
    let told = unknown.filter_map(|key| {
        let nearest = ASKED.iter().map(|known| (distance(key, known), *known)).min()?;
        (nearest.0 <= TYPO_MAX.min((nearest.1.len() - PREFIX.len()) / 3))
            .then(|| format!("metadata.annotations[{key}]: unknown annotation; did you mean {}?", nearest.1))
    });
    told.collect()
}

/// How many letters have to be put in, taken out or changed to make one text of the other (Levenshtein).
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.bytes().enumerate() {
            let changed = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

/// Takes away what the controller writes: a TrainJob that is made from another's manifest starts anew.
pub fn strip_told(object: &mut Value) {
    let Some(held) = object.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) else { return };
    TOLD.iter().for_each(|key| _ = held.remove(*key));
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn durations_are_hours_minutes_seconds() {
        let cases =
            [("30s", 30), ("5m", 300), ("1h30m", 5400), ("1h1s", 3601), ("0s", 0), ("90m", 5400), ("24h", 86_400)];
        for (text, secs) in cases {
            assert_eq!(duration(text), Some(SignedDuration::from_secs(secs)), "{text}");
        }
        for bad in ["", "30", "s", "-1s", "1.5h", "1s1h", "25h", "24h1s", "1h 1m", "5 m", "9999999999999999999h", "1d"]
        {
            assert_eq!(duration(bad), None, "{bad}");
        }
    }

    #[test]
    fn waits_double_up_to_an_hour() {
        let waits = |backoff: i64, attempts: &[i64]| {
            let options = Options { backoff: SignedDuration::from_secs(backoff), ..Options::default() };
            attempts.iter().map(|attempt| options.wait_after(*attempt).as_secs()).collect::<Vec<_>>()
        };
        assert_eq!(waits(10, &[1, 2, 3, 10, 1000]), [10, 20, 40, 3600, 3600]);
        assert_eq!(waits(0, &[1, 50]), [0, 0]);
        assert_eq!(waits(7200, &[1, 2]), [7200, 7200]);
    }

    #[test]
    fn what_is_malformed_reads_as_absent() {
        let job = json!({"metadata": {"annotations": {TTL_SECONDS: "soon", RETRIES: "-1", RETRY_BACKOFF: "1", LIFECYCLE: "yes",
            GANG: "x", POD_SECURITY: "baseline", FAILURE_POLICY: "never", ATTEMPT: "0", RETRY_AT: "later", RESTARTS: "+1"}}});
        assert_eq!(Options::of(&job), Options::default());
        assert_eq!(faults(&job, None).len(), 10);
        assert_eq!(faults(&job, Some(&job)), []);
    }

    #[test]
    fn a_runtime_asks_for_trainjobs_that_say_nothing() {
        let template =
            json!({"annotations": {RETRIES: "3", TTL_SECONDS: "60", POD_SECURITY: "restricted", ATTEMPT: "7"}});
        let job = json!({"metadata": {"annotations": {RETRIES: "0", POD_SECURITY: "unchanged"}}});
        let options = Options::under(&job, &template);
        assert_eq!(options, Options { ttl_secs: Some(60), ..Options::default() }, "its own word counts");
        let options = Options::under(&json!({}), &template);
        assert_eq!((options.retries, options.restricted, options.attempt), (3, true, 1));

        let runtime = json!({"spec": {"template": {"metadata": {"annotations": {RETRIES: "many", "x/y": "z"}}}}});
        let faults = runtime_faults(&runtime, None);
        let text = faults[0].to_string();
        assert!(text.starts_with("spec.template.metadata.annotations[trainyard.dev/retries]: Invalid value"), "{text}");
        assert_eq!((faults.len(), runtime_faults(&runtime, Some(&runtime)).len()), (1, 0));
    }

    #[test]
    fn only_what_looks_misspelt_is_warned_of() {
        let warned = |key: &str| warnings(&json!({"metadata": {"annotations": {key: "1"}}}));
        let told =
            "metadata.annotations[trainyard.dev/retires]: unknown annotation; did you mean trainyard.dev/retries?";
        assert_eq!(warned("trainyard.dev/retires"), [told]);
        assert_eq!(warned("trainyard.dev/ttl-second-after-finish").len(), 1);
        for fine in ["trainyard.dev/directory", "trainyard.dev/rank", "trainyard.dev/retries", "example.com/retires"] {
            assert!(warned(fine).is_empty(), "{fine}");
        }
    }
}
