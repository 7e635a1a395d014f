//! Why a job waits, fails or makes no progress, as text and as JSON. `diagnose` judges.

use api::object;
use diagnose::{Diagnosis, Facts, LogTail};
use serde_json::Value;

/// Columns that sentences keep to. Quotes and commands are never broken.
const WIDTH: usize = 80;
/// Last lines of the rank that failed, at the end of a run.
const LAST_LINES: usize = 8;

/// `{state, reason, code, why, rank, evidence, ruled_out, remedies}`, and `warnings` where there are any.
pub fn json(diagnosis: &Diagnosis) -> Value {
    serde_json::to_value(diagnosis).expect("a diagnosis is JSON")
}

/// What a person reads.
pub fn text(job: &str, diagnosis: &Diagnosis) -> String {
    let mut text = format!("{job}: {} ({}, {})\n", diagnosis.state.as_str(), diagnosis.reason.as_str(), diagnosis.code);
    text += &wrapped(&diagnosis.why, 2);
    text += &evidence(diagnosis);
    if !diagnosis.warnings.is_empty() {
        text += "\nWarnings:\n";
        diagnosis.warnings.iter().for_each(|line| text += &wrapped(line, 2));
    }
    if !diagnosis.ruled_out.is_empty() {
        text += "\nNot the cause:\n";
        diagnosis.ruled_out.iter().for_each(|line| text += &wrapped(line, 2));
    }
    if !diagnosis.remedies.is_empty() {
        text += "\nWhat to do:\n";
    }
    for remedy in &diagnosis.remedies {
        text += &wrapped(&remedy.text, 2);
        if let Some(command) = &remedy.command {
            text += &format!("      {command}\n");
        }
    }
    text
}

/// Quotes below their sources, each source once.
fn evidence(diagnosis: &Diagnosis) -> String {
    let mut text = String::new();
    let mut source = "";
    for evidence in &diagnosis.evidence {
        if text.is_empty() {
            text += "\nEvidence:\n";
        }
        if evidence.source != source {
            source = &evidence.source;
            text += &wrapped(&format!("{source}:"), 2);
        }
        evidence.text.lines().for_each(|line| text += &format!("      {line}\n"));
    }
    text
}

/// Words in lines of at most `WIDTH` columns, the first and all others indented.
pub fn wrapped(text: &str, indent: usize) -> String {
    let mut lines = String::new();
    let mut line = String::new();
    for word in text.split_whitespace() {
        if !line.is_empty() && indent + line.chars().count() + 1 + word.chars().count() > WIDTH {
            lines += &format!("{:indent$}{line}\n", "");
            line.clear();
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line += word;
    }
    if !line.is_empty() {
        lines += &format!("{:indent$}{line}\n", "");
    }
    lines
}

/// The sentence, what shows it, and what was ruled out, as a part of a longer text.
pub fn why(diagnosis: &Diagnosis) -> String {
    let mut text = wrapped(&diagnosis.why, 2);
    for evidence in &diagnosis.evidence {
        text += &wrapped(&format!("{}:", evidence.source), 4);
        evidence.text.lines().for_each(|line| text += &format!("      {line}\n"));
    }
    text
}

/// The last lines of the process that failed first, and the step that it belongs to.
pub fn last_lines(facts: &Facts, diagnosis: &Diagnosis, most: usize) -> Option<(String, Vec<String>)> {
    let process = diagnosis.process.as_ref()?;
    let of_process = |log: &&LogTail| log.uid == process.uid && log.container == process.container;
    let log = facts.logs.iter().filter(of_process).max_by_key(|log| log.attempt == process.attempt)?;
    let lines = diagnose::last_lines(log, diagnosis.rank, most);
    (!lines.is_empty()).then(|| (process.step.clone(), lines))
}

/// The end of a failed run: the last lines of the process that failed first, a sentence, a command.
pub fn end(facts: &Facts, diagnosis: &Diagnosis) -> String {
    let name = object::meta(&facts.job, "name");
    let mut text = String::new();
    if let Some((step, lines)) = last_lines(facts, diagnosis, LAST_LINES) {
        let who = diagnosis.rank.map_or(step, |rank| format!("rank {rank}"));
        text += &format!("last lines of {who}:\n");
        lines.iter().for_each(|line| text += &format!("  {line}\n"));
    }
    text += &format!("job {name} failed: {} ({})\n", diagnosis.reason.as_str(), diagnosis.code);
    text += &format!("why: {}\n", diagnosis.why);
    let next = diagnosis.remedies.iter().find(|remedy| remedy.command.is_some()).or(diagnosis.remedies.first());
    if let Some(remedy) = next {
        match &remedy.command {
            Some(command) => text += &format!("next: {command}  # {}\n", remedy.text),
            None => text += &format!("next: {}\n", remedy.text),
        }
    }
    text += &format!("more: trainyard explain {name}{}\n", flags(facts));
    text
}

fn flags(facts: &Facts) -> String {
    if facts.home.flags.is_empty() { String::new() } else { format!(" {}", facts.home.flags) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use diagnose::diagnose;
    use serde_json::json;

    fn facts(log: &str) -> Facts {
        let pod = json!({"metadata": {"name": "j-node-0-0-x", "uid": "p", "labels": {
            "jobset.sigs.k8s.io/replicatedjob-name": "node", "batch.kubernetes.io/job-completion-index": "0"}},
            "status": {"phase": "Failed", "containerStatuses": [{"name": "node", "state": {"terminated": {
                "exitCode": 3, "reason": "Error", "finishedAt": "2026-01-01T00:00:00Z"}}}]}});
        let lines: Vec<Value> = log.lines().map(|text| json!({"rank": 0, "text": text})).collect();
        serde_json::from_value(json!({
            "job": {"metadata": {"name": "j"}, "status": {"conditions": [{"type": "Failed", "status": "True"}]}},
            "pods": [{"pod": pod}],
            "logs": [{"pod": "j-node-0-0-x", "uid": "p", "container": "node", "lines": lines}],
            "home": {"flags": "-n a", "kubectl": "kubectl -n a"},
        }))
        .expect("facts")
    }

    #[test]
    fn the_end_of_a_run_says_why_and_what_next() {
        let facts = facts(
            "begins\nTraceback (most recent call last):\n  File \"/w/bad.py\", line 2, in <module>\nValueError: boom",
        );
        let told = end(&facts, &diagnose(&facts));
        assert_eq!(
            told,
            "last lines of rank 0:\n  begins\n  Traceback (most recent call last):\n    File \"/w/bad.py\", line 2, in <module>\n  \
             ValueError: boom\njob j failed: Exception (TY1101)\nwhy: rank 0 raised ValueError at bad.py:2: boom\nnext: kubectl -n a get \
             trainjob j -o yaml | kubectl -n a replace --force -f -  # correct /w/bad.py at line 2, then run it again\nmore: trainyard explain j -n a\n"
        );
    }

    #[test]
    fn members_of_the_json_are_these() {
        let facts = facts("x");
        let told = json(&diagnose(&facts));
        let members: Vec<&str> = told.as_object().expect("an object").keys().map(String::as_str).collect();
        let mut expected = ["state", "reason", "code", "why", "rank", "evidence", "ruled_out", "remedies"];
        expected.sort_unstable();
        let mut sorted = members.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, expected);
        assert_eq!((told["state"].as_str(), told["reason"].as_str()), (Some("failed"), Some("ExitCode")));
    }

    #[test]
    fn sentences_keep_to_the_width() {
        let text = wrapped(&"word ".repeat(40), 2);
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH && line.starts_with("  word")), "{text}");
        assert_eq!(text.split_whitespace().count(), 40);
    }
}
