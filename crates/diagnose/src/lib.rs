//! Says why a job waits, fails or stands still: facts in; reason, evidence, excluded causes and remedies out.
//!
//! [`diagnose`] is a pure function of its facts. It judges in this order: where the job stands; what ended its containers,
//! which one failed first (`ending`), and what that process wrote (`verdict`, by the table of `signs`); otherwise what keeps pods from
//! being created, placed or started (`waiting`); otherwise whether it makes progress (`moving`). `advice` has the texts for each reason.

mod advice;
mod context;
mod ending;
mod events;
mod facts;
mod failed;
mod lines;
mod local;
mod moving;
mod mpijob;
mod pattern;
pub mod pods;
mod reason;
mod signs;
mod standing;
mod tell;
mod verdict;
mod waiting;

pub use events::of_job as events_of_job;
pub use facts::{Facts, Home, Line, LocalModule, LogTail, PodFacts, RankProcess};
pub use reason::{Reason, State};
pub use standing::{PodSigns, Signs, Stance, Standing, standing};
pub use tell::{Diagnosis, Evidence, Process, Remedy};

use pods::Phase;
use tell::Case;

/// Judges a job.
pub fn diagnose(facts: &Facts) -> Diagnosis {
    let (state, case) = match Phase::of(&facts.job) {
        Phase::Complete => (State::Complete, mpijob::unused(facts).unwrap_or_else(|| Case::new(Reason::Complete))),
        Phase::Suspended => (State::Suspended, waiting::suspended(facts)),
        Phase::Failed => (State::Failed, failed::of_job(facts)),
        phase @ (Phase::Pending | Phase::Running) => unfinished(facts, phase),
    };
    case.tell(facts, state)
}

fn unfinished(facts: &Facts, phase: Phase) -> (State, Case) {
    let live = facts.pods.iter().filter(|pod| pod.live).map(|pod| &pod.pod);
    if let Standing::Restarting(_) | Standing::CrashLoop(_) = standing(&facts.job, &facts.jobset, live, facts.now)
        && let Some(mut case) = failed::of_ends(facts).or_else(|| failed::from_outside(facts))
    {
        case.next = waiting::retry(facts).map(Box::new);
        return (State::Restarting, case);
    }
    if phase == Phase::Pending {
        return (State::Pending, waiting::of_job(facts));
    }
    // pods of a lost node still count as running, but nobody knows what they do
    match failed::from_outside_now(facts) {
        Some(case) => (State::Stuck, case),
        None => moving::of_job(facts),
    }
}

/// The exit code of the process that failed first by itself, in the attempt that decided; `None` where nothing failed.
pub fn exit_code(facts: &Facts) -> Option<i64> {
    ending::endings(facts).first().map(ending::Ending::process_code)
}

/// The last lines of a log that are not a launcher's about itself: of one rank, where its lines can be told from the others'.
pub fn last_lines(log: &LogTail, rank: Option<i64>, most: usize) -> Vec<String> {
    lines::last(log, rank, most)
}

/// Warnings that the controller wrote when it built the job: settings that do not do what one expects.
pub fn warnings(facts: &Facts) -> Vec<String> {
    let uid = api::object::uid(&facts.job);
    let is_its = |event: &&serde_json::Value| {
        event["reason"] == "CheckSettings" && api::object::text(&event["involvedObject"], "uid") == uid
    };
    let mut warnings: Vec<String> = Vec::new();
    for event in facts.events.iter().filter(is_its) {
        let text = api::foreign::visible_line(api::object::text(event, "message")).into_owned();
        if !warnings.contains(&text) {
            warnings.push(text);
        }
    }
    warnings
}

/// What is said of a reason of which nothing more is known than the facts.
pub fn said_of(reason: Reason, state: State, facts: &Facts) -> Diagnosis {
    Case::new(reason).tell(facts, state)
}

/// What is proposed for a reason, as the documentation lists it: texts and commands without gaps.
pub fn remedies_of(reason: Reason) -> Vec<(String, Option<String>)> {
    let remedies = advice::of(reason).remedies.iter().filter(|(text, _)| !text.contains('{'));
    remedies.map(|(text, command)| (sentence(text), documented(command))).collect()
}

fn sentence(text: &str) -> String {
    match (text.strip_prefix("@local "), text.strip_prefix("@cluster ")) {
        (Some(text), _) => format!("On this machine: {text}."),
        (_, Some(text)) => format!("On a cluster: {text}."),
        (None, None) => {
            let mut letters = text.chars();
            let first = letters.next().map(|letter| letter.to_uppercase().to_string()).unwrap_or_default();
            format!("{first}{}.", letters.as_str())
        }
    }
}

/// A command with capitals where names stand; `None` for one that is made of what is known of a job.
fn documented(command: &str) -> Option<String> {
    let names = ["job", "node", "pod", "container", "claim", "image", "path", "volume", "runtime"];
    let named = |command: String, name: &&str| command.replace(&format!("{{{name}}}"), &name.to_uppercase());
    let plain = command.replace("{flags}", "").replace("{kubectl}", "kubectl").replace("{quoted_path}", "PATH");
    let command = names.iter().fold(plain.replace("{ns}", "NAMESPACE"), named);
    (!command.is_empty() && !command.contains('{')).then_some(command)
}
