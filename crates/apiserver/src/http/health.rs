//! `/livez`, `/readyz` and `/healthz`: what works, check by check.
//!
//! Paths, parameters and texts are kube-apiserver's. The reason of a failure is only for users who may ask for that check by
//! itself; upstream tells it to nobody on this path.

use super::Server;
use super::answer::{Body, response};
use super::handle::Ask;
use http::{HeaderValue, Response};
use std::fmt::Write;
use std::sync::Arc;

const PLAIN_TEXT: &str = "text/plain; charset=utf-8";

/// Something beside the server on which its service depends, such as the controllers of the same process.
pub trait Check: Send + Sync + 'static {
    /// One word in the form of a DNS label.
    fn name(&self) -> &str;

    /// # Errors
    /// What is wrong, and what to do.
    fn check(&self) -> Result<(), String>;

    /// Whether the process is beyond help while it fails, and should be started again.
    fn is_vital(&self) -> bool;
}

struct Outcome<'a> {
    name: &'a str,
    /// What there is to say where all is well.
    note: String,
    result: Result<(), String>,
}

impl<'a> Outcome<'a> {
    fn new(name: &'a str, result: Result<(), String>) -> Self {
        Self { name, note: String::new(), result }
    }
}

impl Server {
    /// The answer to a path of health, if it is one that exists.
    pub(super) fn health(&self, ask: &Ask, path: &str) -> Option<Response<Body>> {
        let mut words = path.trim_start_matches('/').splitn(2, '/');
        let (endpoint, asked) = (words.next().unwrap_or_default(), words.next());
        let (vital_only, stores) = match endpoint {
            "livez" => (true, false),
            "readyz" => (false, true),
            "healthz" => (true, true),
            _ => return None,
        };
        let mut outcomes = vec![Outcome::new("ping", Ok(()))];
        if stores {
            outcomes.extend(self.store_checks());
        }
        if endpoint == "readyz" {
            let stops = self.stops.load(std::sync::atomic::Ordering::Relaxed);
            outcomes.push(Outcome::new(
                "shutdown",
                if stops { Err("process is shutting down".to_owned()) } else { Ok(()) },
            ));
        }
        let more = self.checks.iter().filter(|check| !vital_only || check.is_vital());
        outcomes.extend(more.map(|check| Outcome::new(check.name(), check.check())));

        if let Some(name) = asked {
            let Outcome { result, .. } = outcomes.into_iter().find(|outcome| outcome.name == name)?;
            return Some(text(match result {
                Ok(()) => (200, "ok".to_owned()),
                Err(why) => (500, format!("internal server error: {why}\n")),
            }));
        }
        // only users who may ask for a single check see what failed, and which objects are damaged
        let tells = self.allows_path(&ask.user, "get", &format!("/{endpoint}/etcd"));
        let excluded: Vec<String> = ask.query.all("exclude").map(str::to_owned).collect();
        Some(text(render(endpoint, &outcomes, &excluded, ask.query.get("verbose").is_some(), tells)))
    }

    /// What upstream asks of etcd, and whether all that is stored is served.
    fn store_checks(&self) -> [Outcome<'static>; 2] {
        let store::Health { trouble, set_aside, .. } = self.core.store.health();
        let writes = trouble.map_or(Ok(()), |trouble| Err(format!("{}: {}", trouble.fault.what(), trouble.message)));
        // it does not come back by itself, and everything else is served: no reason to take the service away
        let mut objects = Outcome::new("stored-objects", Ok(()));
        if !set_aside.is_empty() {
            let names: Vec<String> = set_aside
                .iter()
                .take(10)
                .map(|row| match row.name.is_empty() {
                    true => row.why.clone(),
                    false => [&row.bucket[..], &row.namespace, &row.name].join("/"),
                })
                .collect();
            objects.note = format!(" ({} damaged and set aside: {})", set_aside.len(), names.join(", "));
        }
        [Outcome::new("etcd", writes), objects]
    }
}

/// Status and text of an answer about all checks.
fn render(endpoint: &str, outcomes: &[Outcome<'_>], excluded: &[String], verbose: bool, tells: bool) -> (u16, String) {
    let mut out = String::new();
    let mut failed = false;
    for Outcome { name, note, result } in outcomes {
        let note = if tells { note.as_str() } else { "" };
        // a String takes everything
        let _ = match result {
            _ if excluded.iter().any(|other| other == name) => writeln!(out, "[+]{name} excluded: ok"),
            Ok(()) => writeln!(out, "[+]{name} ok{note}"),
            Err(why) => {
                failed = true;
                writeln!(out, "[-]{name} failed: {}", if tells { why.as_str() } else { "reason withheld" })
            }
        };
    }
    let unknown: Vec<String> = excluded
        .iter()
        .filter(|name| outcomes.iter().all(|outcome| outcome.name != *name))
        .map(|name| format!("{name:?}"))
        .collect();
    if !unknown.is_empty() {
        let _ = writeln!(out, "warn: some health checks cannot be excluded: no matches for {}", unknown.join(","));
    }
    match (failed, verbose) {
        (true, _) => (500, out + &format!("{endpoint} check failed\n")),
        (false, true) => (200, out + &format!("{endpoint} check passed\n")),
        (false, false) => (200, "ok".to_owned()),
    }
}

fn text((code, text): (u16, String)) -> Response<Body> {
    let mut answer = response(code, PLAIN_TEXT, text);
    answer.headers_mut().insert(http::header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    answer
}

/// Checks that a server is made with.
pub(super) type Checks = Vec<Arc<dyn Check>>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checks_are_told_as_upstream_tells_them() {
        let outcomes = [
            Outcome::new("ping", Ok(())),
            Outcome::new("etcd", Err("the disk is full".to_owned())),
            Outcome { name: "stored-objects", note: " (1 damaged)".to_owned(), result: Ok(()) },
        ];
        let none: [String; 0] = [];
        let told = render("readyz", &outcomes, &none, false, true);
        let expected =
            "[+]ping ok\n[-]etcd failed: the disk is full\n[+]stored-objects ok (1 damaged)\nreadyz check failed\n";
        assert_eq!(told, (500, expected.to_owned()));
        let told = render("readyz", &outcomes, &none, false, false);
        assert!(told.1.contains("[-]etcd failed: reason withheld\n[+]stored-objects ok\n"), "{}", told.1);
        let excluded = ["etcd".to_owned(), "dns".to_owned()];
        let told = render("livez", &outcomes, &excluded, true, true);
        let expected = "[+]ping ok\n[+]etcd excluded: ok\n[+]stored-objects ok (1 damaged)\n\
            warn: some health checks cannot be excluded: no matches for \"dns\"\nlivez check passed\n";
        assert_eq!(told, (200, expected.to_owned()));
        assert_eq!(render("livez", &outcomes, &excluded, false, true), (200, "ok".to_owned()));
    }
}
