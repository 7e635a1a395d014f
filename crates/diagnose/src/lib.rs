//! Why a job waits, fails or stands still: facts in; reason, evidence, what was ruled out, and remedies out.
//!
//! [`diagnose`] is a function of its facts alone. It judges in this order: how the job stands; what ended its containers,
//! who failed first (`ending`), and what that process wrote (`verdict`, by the table of `signs`); else what keeps pods from
//! being made, placed or started (`waiting`); else whether it gets on (`moving`). What is said of each reason is in `advice`.

mod advice;
mod context;
mod ending;
mod events;
mod facts;
mod failed;
mod lines;
mod moving;
mod pattern;
pub mod pods;
mod reason;
mod signs;
mod standing;
mod tell;
mod verdict;
mod waiting;

pub use events::of_job as events_of_job;
pub use facts::{Facts, Home, Line, LogTail, PodFacts};
pub use reason::{Reason, State};
pub use standing::{Standing, standing};
pub use tell::{Diagnosis, Evidence, Process, Remedy};

use pods::Phase;
use tell::Case;

/// Judges a job.
pub fn diagnose(facts: &Facts) -> Diagnosis {
    let (state, case) = match Phase::of(&facts.job) {
        Phase::Complete => (State::Complete, Case::new(Reason::Complete)),
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
    match failed::from_outside(facts) {
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

/// What is proposed for a reason, as the documentation lists it: texts without gaps.
pub fn remedies_of(reason: Reason) -> Vec<String> {
    let text = |text: &str| match (text.strip_prefix("@local "), text.strip_prefix("@cluster ")) {
        (Some(text), _) => format!("On this machine: {text}."),
        (_, Some(text)) => format!("On a cluster: {text}."),
        (None, None) => {
            let mut letters = text.chars();
            let first = letters.next().map(|letter| letter.to_uppercase().to_string()).unwrap_or_default();
            format!("{first}{}.", letters.as_str())
        }
    };
    let remedies = advice::of(reason).remedies.iter().filter(|(text, _)| !text.contains('{'));
    remedies.map(|(remedy, _)| text(remedy)).collect()
}
