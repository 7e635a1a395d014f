//! Turns a case (a reason and what is known about it) into the diagnosis that is printed.

use crate::advice;
use crate::context;
use crate::facts::Facts;
use crate::failed::complete;
use crate::local;
use crate::mpijob;
use crate::pattern::{Vars, fill, quoted};
use crate::reason::{Reason, State};
use api::foreign::{visible, visible_line};
use serde::Serialize;

/// Longest line that is quoted.
const QUOTE_MAX: usize = 400;
/// Quotes of a diagnosis.
const QUOTES_MAX: usize = 6;

/// A line or message that shows why, and where it is from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Evidence {
    pub source: String,
    pub text: String,
}

/// Something to do, and the command for it where there is one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Remedy {
    pub text: String,
    pub command: Option<String>,
}

/// The run of a container that failed first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    pub pod: String,
    pub uid: String,
    pub step: String,
    pub container: String,
    /// How often it had been restarted before.
    pub attempt: i64,
}

/// What is wrong with a job, or that nothing is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Diagnosis {
    pub state: State,
    pub reason: Reason,
    /// The reason's code.
    pub code: &'static str,
    /// One sentence.
    pub why: String,
    /// The rank that failed first, where one did and it is known.
    pub rank: Option<i64>,
    pub evidence: Vec<Evidence>,
    pub ruled_out: Vec<String>,
    pub remedies: Vec<Remedy>,
    /// Settings that do not do what one expects, whatever the state.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// The exit code of the process that failed first, as far as it is known.
    #[serde(skip)]
    pub exit_code: Option<i64>,
    /// Whose log says more.
    #[serde(skip)]
    pub process: Option<Process>,
}

/// A reason, with what is known of it.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub reason: Reason,
    pub vars: Vars,
    pub rank: Option<i64>,
    pub evidence: Vec<Evidence>,
    pub ruled_out: Vec<String>,
    pub exit_code: Option<i64>,
    pub process: Option<Process>,
    /// The command that shows more of the log.
    pub logs: Option<String>,
    /// What comes next, said after it.
    pub next: Option<Box<Case>>,
}

impl Case {
    pub fn new(reason: Reason) -> Self {
        Self {
            reason,
            vars: Vars::new(),
            rank: None,
            evidence: Vec::new(),
            ruled_out: Vec::new(),
            exit_code: None,
            process: None,
            logs: None,
            next: None,
        }
    }

    pub fn with(mut self, name: &'static str, text: impl Into<String>) -> Self {
        self.vars.insert(name, text.into());
        self
    }

    /// Quotes a text, once; an empty one says nothing.
    pub fn quote(&mut self, source: &str, text: &str) {
        let text = shortened(&visible(text.trim()));
        let is_new = self.evidence.iter().all(|held| held.text != text);
        if !text.is_empty() && is_new && self.evidence.len() < QUOTES_MAX {
            self.evidence.push(Evidence { source: source.to_owned(), text });
        }
    }

    /// The sentence and the remedies, with all names filled in.
    pub fn tell(self, facts: &Facts, state: State) -> Diagnosis {
        let mut vars = complete(context::of(facts), &self.vars);
        if self.reason == Reason::MissingModule
            && let Some(module) = vars.get("module").cloned()
            && let Some(local) = local::explained(facts, &module)
        {
            vars.remove("package");
            if let (Some(path), Some(rerun)) = (local.get("local_path"), vars.get("rerun")) {
                let rerun = rerun.replacen("trainyard run", &format!("trainyard run --env {path}"), 1);
                vars.insert("rerun_path", rerun);
                vars.remove("rerun");
            }
            vars.extend(local);
        }
        if !vars.contains_key("who") {
            vars.insert("who", "the job".to_owned());
        }
        // a sentence has one line
        let one_line = |text: &mut String| *text = shortened(&text.split_whitespace().collect::<Vec<_>>().join(" "));
        for name in ["message", "last", "cause"] {
            vars.entry(name).and_modify(one_line);
        }
        let advice = advice::of(self.reason);
        let why = advice.why.iter().find_map(|sentence| fill(sentence, &vars));
        let mut remedies: Vec<Remedy> = Vec::new();
        let here = |text: &'static str| match (text.strip_prefix("@local "), text.strip_prefix("@cluster ")) {
            (Some(text), _) => facts.home.local.then_some(text),
            (_, Some(text)) => (!facts.home.local).then_some(text),
            (None, None) => Some(text),
        };
        for (text, command) in advice.remedies {
            let Some(text) = here(text).and_then(|text| fill(text, &vars)) else { continue };
            let command = match *command {
                "" => None,
                template => match of_kind(template, facts).and_then(|template| fill_command(&template, &vars)) {
                    Some(command) => Some(command),
                    None => continue,
                },
            };
            let is_new = remedies.iter().all(|held| held.command.is_none() || held.command != command);
            let is_said = remedies.iter().any(|held| held.text == text);
            if is_new && !is_said {
                remedies.push(Remedy { text: visible_line(&text).into_owned(), command });
            }
        }
        if let Some(logs) = self.logs {
            remedies.push(Remedy { text: "see its last lines".to_owned(), command: Some(logs) });
        }
        let mut why = why.unwrap_or_else(|| self.reason.meaning().to_owned());
        if let Some(next) = self.next {
            let next = next.tell(facts, state);
            why += &format!("; {}", next.why);
            remedies.extend(next.remedies);
        }
        let needs_none = matches!(self.reason, Reason::Complete | Reason::Running | Reason::Starting);
        if remedies.is_empty() && !needs_none {
            let command = fill_command("{kubectl} get events --sort-by=.lastTimestamp", &vars);
            remedies.push(Remedy { text: "see all events".to_owned(), command });
        }
        Diagnosis {
            state,
            reason: self.reason,
            code: self.reason.code(),
            why: visible_line(&why).into_owned(),
            rank: self.rank,
            evidence: self.evidence,
            ruled_out: self.ruled_out,
            remedies,
            warnings: crate::warnings(facts),
            exit_code: self.exit_code,
            process: self.process,
        }
    }
}

/// A command as it is for the job's kind.
fn of_kind(template: &str, facts: &Facts) -> Option<String> {
    if mpijob::is(&facts.job) { mpijob::command(template) } else { Some(template.to_owned()) }
}

/// A command; `{flags}` may stand for nothing.
///
/// What was read from logs and objects stands in it as one word that a shell does not interpret: `pip install 'x;touch y'`. A word that
/// would be an option, or has control characters, makes no command.
fn fill_command(template: &str, vars: &Vars) -> Option<String> {
    let flags = vars.get("flags").map_or("", String::as_str);
    let mut safe = Vars::new();
    for (name, text) in vars {
        let is_ours = OURS.contains(name) || name.starts_with("rerun");
        let is_used = template.contains(&format!("{{{name}}}"));
        let is_word = !text.starts_with('-') && matches!(visible_line(text), std::borrow::Cow::Borrowed(_));
        if !is_used || is_ours || text.is_empty() {
            safe.insert(name, text.clone());
        } else if is_word {
            safe.insert(name, quoted(text));
        }
    }
    fill(&template.replace("{flags}", flags), &safe)
}

/// Values that this crate has made itself, of words that are quoted where they need to be.
const OURS: [&str; 12] = [
    "directory",
    "flags",
    "install",
    "kubectl",
    "local_path",
    "logs",
    "python",
    "quoted_path",
    "script",
    "script_help",
    "slots",
    "venv",
];

fn shortened(text: &str) -> String {
    if text.chars().count() <= QUOTE_MAX {
        text.to_owned()
    } else {
        text.chars().take(QUOTE_MAX).chain(['…']).collect()
    }
}
