//! Whether a running job makes progress: silence, values that are NaN, a loss that stays the same, steps that take longer.

use crate::facts::{Facts, Line, LogTail};
use crate::pods::{short_duration, statuses, step};
use crate::reason::{Reason, State};
use crate::tell::Case;
use crate::waiting;
use api::object;
use jiff::Timestamp;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Silence of all ranks after which a job counts as stuck.
const SILENT_SECS: i64 = 600;
/// The same where every pod is known to use no processor, and none has a GPU on which it could compute.
const SILENT_IDLE_SECS: i64 = 30;
/// The same where all pods use processors.
const SILENT_BUSY_SECS: i64 = 3600;
/// Thousandths of a processor from which on a pod counts as at work.
const BUSY_MILLI: i64 = 50;
/// Silence after an exception, from which on its process counts as hanging.
const HANGS_SECS: i64 = 60;
/// Reports of one loss that must all be the same.
const FLAT_MIN: usize = 20;
/// Reports of steps that are compared, and how much slower the last of them must be.
const STEPS_MIN: usize = 12;
const RECENT: usize = 4;
const SLOWER: i64 = 3;
const SLOW_SECS: i64 = 10;
/// Ranks whose last lines are quoted.
const RANKS_MAX: usize = 6;

/// State and reason of a running job.
pub(crate) fn of_job(facts: &Facts) -> (State, Case) {
    // pods of it may wait while others run, for what they cannot have
    if let Some(case) = waiting::of_pods(facts) {
        return (State::Pending, case);
    }
    if let Some(case) = hangs(facts) {
        return (State::Stuck, case);
    }
    if let Some(case) = nan(facts).or_else(|| flat_reports(facts)).or_else(|| flat(facts)) {
        return (State::Running, case);
    }
    if let Some(case) = stuck(facts) {
        return (State::Stuck, case);
    }
    if let Some(case) = slow_reports(facts).or_else(|| slow(facts)) {
        return (State::Slow, case);
    }
    (State::Running, waiting::steps(facts).unwrap_or_else(|| Case::new(Reason::Running)))
}

/// The logs of containers that run now.
fn at_work(facts: &Facts) -> Vec<(&Value, &LogTail)> {
    let live = facts.pods.iter().filter(|pod| pod.live).map(|pod| &pod.pod);
    let running = live.flat_map(|pod| {
        statuses(pod).filter(|status| status["state"].get("running").is_some()).map(move |status| (pod, status))
    });
    running
        .filter_map(|(pod, status)| {
            let of_container = |log: &&LogTail| {
                (log.uid == object::uid(pod) || (log.uid.is_empty() && log.pod == object::meta(pod, "name")))
                    && log.container == object::text(status, "name")
            };
            Some((pod, facts.logs.iter().filter(of_container).max_by_key(|log| log.attempt)?))
        })
        .collect()
}

fn source(pod: &Value, log: &LogTail, line: &Line) -> String {
    let rank = line.rank.map_or(String::new(), |rank| format!(" (rank {rank})"));
    format!("{}{rank}, container {}, attempt {}, log", step(pod), log.container, log.attempt)
}

/// The loss that a line reports, as text: what follows the word and at most some marks.
fn loss(text: &str) -> Option<&str> {
    let lower = text.to_ascii_lowercase();
    let at = lower.find("loss")? + "loss".len();
    let rest = text.get(at..)?.trim_start_matches(|c: char| c.is_whitespace() || "=:'\",(".contains(c));
    let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || "+-.".contains(c))).unwrap_or(rest.len());
    Some(&rest[..end]).filter(|word| !word.is_empty())
}

fn is_no_number(word: &str) -> bool {
    let word = word.trim_start_matches(['-', '+']).to_ascii_lowercase();
    matches!(word.as_str(), "nan" | "inf" | "infinity")
}

fn nan(facts: &Facts) -> Option<Case> {
    let reported = facts.job["status"]["trainerStatus"]["metrics"].as_array().into_iter().flatten();
    for metric in reported {
        let (name, value) = (object::text(metric, "name"), object::text(metric, "value"));
        if name.to_ascii_lowercase().contains("loss") && is_no_number(value) {
            let mut case = Case::new(Reason::NanLoss).with("last", format!("{name} {value}")).with("who", "the job");
            case.quote("progress that the job reported", &format!("{name}: {value}"));
            return Some(case);
        }
    }
    for (pod, log) in at_work(facts) {
        let Some(line) = log.lines.iter().rev().find(|line| loss(&line.text).is_some()) else { continue };
        if loss(&line.text).is_some_and(is_no_number) {
            let who = line.rank.map_or_else(|| step(pod), |rank| format!("rank {rank}"));
            let mut case = Case::new(Reason::NanLoss).with("last", line.text.trim()).with("who", who);
            case.rank = line.rank;
            case.quote(&source(pod, log, line), &line.text);
            return Some(case);
        }
    }
    None
}

/// A metric of losses that has been the same in all of its last reports.
fn flat_reports(facts: &Facts) -> Option<Case> {
    let names: BTreeSet<&str> = facts.reports.iter().flat_map(metrics).map(|(name, _)| name).collect();
    for name in names.into_iter().filter(|name| name.to_ascii_lowercase().contains("loss")) {
        let of_report = |report| metrics(report).find(|(held, _)| *held == name).map(|(_, value)| value);
        let values: Vec<&str> = facts.reports.iter().filter_map(of_report).collect();
        let Some(last) = values.last().filter(|last| last.parse::<f64>().is_ok()) else { continue };
        let count = values.iter().rev().take_while(|value| *value == last).count();
        if count >= FLAT_MIN {
            let mut case = Case::new(Reason::LossFlat).with("loss", *last).with("steps", count.to_string());
            case.quote(
                "progress that the job reported",
                &format!("{name}: {last}, in the last {count} of {} reports", values.len()),
            );
            return Some(case);
        }
    }
    None
}

/// Names and values of a report's metrics.
fn metrics(report: &Value) -> impl Iterator<Item = (&str, &str)> {
    let metrics = report["metrics"].as_array().into_iter().flatten();
    metrics.map(|metric| (object::text(metric, "name"), object::text(metric, "value")))
}

fn flat(facts: &Facts) -> Option<Case> {
    for (pod, log) in at_work(facts) {
        let mut ranks: Vec<Option<i64>> = log.lines.iter().map(|line| line.rank).collect();
        ranks.sort();
        ranks.dedup();
        for rank in ranks {
            let lines = log.lines.iter().filter(|line| line.rank == rank);
            let losses: Vec<(&Line, &str)> = lines
                .filter_map(|line| Some((line, loss(&line.text).filter(|word| word.parse::<f64>().is_ok())?)))
                .collect();
            let Some(last) = losses.last() else { continue };
            let count = losses.iter().rev().take_while(|(_, word)| *word == last.1).count();
            if count >= FLAT_MIN {
                let mut case = Case::new(Reason::LossFlat).with("loss", last.1).with("steps", count.to_string());
                case.rank = rank;
                case.quote(&source(pod, log, last.0), &last.0.text);
                return Some(case);
            }
        }
    }
    None
}

/// A process whose last words, some time ago, are an exception.
fn hangs(facts: &Facts) -> Option<Case> {
    for (pod, log) in at_work(facts) {
        let Some(verdict) = crate::verdict::of(log) else { continue };
        let Some(time) = verdict.time.filter(|_| verdict.from_end == 0 && verdict.vars.contains_key("exception"))
        else {
            continue;
        };
        // another rank may go on, and will end this one
        let written = log.lines.iter().filter_map(|line| line.time).max().unwrap_or(time).max(time);
        let silent = facts.now.as_second().saturating_sub(written.as_second());
        if silent < HANGS_SECS {
            continue;
        }
        let who = verdict
            .rank
            .or_else(|| crate::pods::node_rank(pod))
            .map_or_else(|| step(pod), |rank| format!("rank {rank}"));
        let mut case = Case::new(Reason::HangsAfterFailure).with("who", who).with("silent", short_duration(silent));
        case.rank = verdict.rank.or_else(|| crate::pods::node_rank(pod));
        case.vars.extend(verdict.vars);
        let source = format!("{}, container {}, attempt {}, log", step(pod), log.container, log.attempt);
        verdict.quotes.iter().for_each(|quote| case.quote(&source, quote));
        return Some(case);
    }
    None
}

fn stuck(facts: &Facts) -> Option<Case> {
    let logs = at_work(facts);
    if logs.is_empty() {
        return None;
    }
    let started = facts
        .pods
        .iter()
        .filter(|pod| pod.live)
        .flat_map(|pod| statuses(&pod.pod))
        .filter_map(|status| object::text(&status["state"]["running"], "startedAt").parse::<Timestamp>().ok());
    let last_report = facts.reports.last().unwrap_or(&facts.job["status"]["trainerStatus"]);
    let reported = reported_at(last_report);
    let written = logs.iter().flat_map(|(_, log)| log.lines.iter().filter_map(|line| line.time));
    let last = started.chain(reported).chain(written).max()?;
    let silent = facts.now.as_second().saturating_sub(last.as_second());
    // what computes may be silent for longer; what waits for a peer on a GPU is busy as well, so not for ever
    let names: Vec<&str> = logs.iter().map(|(pod, _)| object::meta(pod, "name")).collect();
    let used = |name: &str| facts.processors.get(name).copied();
    let all_busy = names.iter().all(|name| used(name).is_some_and(|milli| milli >= BUSY_MILLI));
    let all_idle = names.iter().all(|name| used(name).is_some_and(|milli| milli < BUSY_MILLI))
        && !logs.iter().any(|(pod, _)| has_gpu(pod));
    let limit = match (all_busy, all_idle) {
        (true, _) => SILENT_BUSY_SECS,
        (_, true) => SILENT_IDLE_SECS,
        (false, false) => SILENT_SECS,
    };
    if silent < limit {
        return None;
    }
    let mut case = Case::new(Reason::Stuck).with("silent", short_duration(silent));
    let mut last: Vec<(&Value, &LogTail, &Line)> = Vec::new();
    for (pod, log) in &logs {
        // of each rank that can be told from the others in its log
        let ranks: BTreeSet<Option<i64>> = log.lines.iter().map(|line| line.rank).collect();
        let named = ranks.iter().any(Option::is_some);
        let of_rank = |rank: Option<i64>| log.lines.iter().rev().find(|line| line.rank == rank);
        let lines = ranks.into_iter().filter(|rank| rank.is_some() || !named).filter_map(of_rank);
        last.extend(lines.map(|line| (*pod, *log, line)));
    }
    // the rank whose last line is the oldest is the place to look at
    last.sort_by_key(|(_, _, line)| line.time);
    case.rank = last.first().and_then(|(_, _, line)| line.rank).filter(|_| last.len() > 1);
    // a rank that is idle while the others wait busily is the one that they wait for
    let idle: Vec<&Value> = logs
        .iter()
        .map(|(pod, _)| *pod)
        .filter(|pod| used(object::meta(pod, "name")).is_some_and(|milli| milli < BUSY_MILLI))
        .collect();
    if let [only] = idle[..]
        && names.len() > 1
        && facts.processors.len() >= names.len()
    {
        case.rank = crate::pods::node_rank(only);
        case.quote(
            &format!("processors in use by pod {}", object::meta(only, "name")),
            "none, while the other pods use theirs",
        );
    }
    for (pod, log, line) in last.into_iter().take(RANKS_MAX) {
        let age = |time: Timestamp| short_duration(facts.now.as_second().saturating_sub(time.as_second()));
        let when = line.time.map_or(String::new(), |time| format!(", {} ago", age(time)));
        case.quote(&format!("{}{when}", source(pod, log, line)), &line.text);
    }
    if case.evidence.is_empty() {
        case.quote("logs of all running containers", "they are empty");
    }
    for process in facts.processes.iter().filter(|process| !process.waits_in.is_empty()).take(RANKS_MAX) {
        case.quote(
            &format!("process {} of rank {}", process.pid, process.rank),
            &format!("waits in {}", process.waits_in),
        );
    }
    let at = case.rank.or_else(|| last_rank(facts));
    let looked_at = facts.processes.iter().find(|process| Some(process.rank) == at).or(facts.processes.first());
    if let Some(process) = looked_at {
        case.vars.insert("pid", process.pid.to_string());
        case.vars.insert("rank", process.rank.to_string());
    } else {
        case.vars.insert("no_pid", "PID".to_owned());
    }
    case.ruled_out.push("no pod waits, restarts or has failed".to_owned());
    if all_busy {
        case.ruled_out.push("its processes do use processors: they compute, or wait busily for each other".to_owned());
    } else if names.iter().all(|name| used(name).is_some_and(|milli| milli < BUSY_MILLI)) {
        case.ruled_out.push("it does not compute in silence: its processes use no processor".to_owned());
    }
    Some(case)
}

/// The rank whose last line is the oldest.
fn last_rank(facts: &Facts) -> Option<i64> {
    let mut last: BTreeMap<i64, Option<Timestamp>> = BTreeMap::new();
    for line in facts.logs.iter().flat_map(|log| &log.lines) {
        if let Some(rank) = line.rank {
            last.insert(rank, line.time);
        }
    }
    last.into_iter().min_by_key(|(_, time)| *time).map(|(rank, _)| rank)
}

fn has_gpu(pod: &Value) -> bool {
    let mut containers = pod["spec"]["containers"].as_array().into_iter().flatten();
    containers.any(|container| {
        let mut limits = container["resources"]["limits"].as_object().into_iter().flatten();
        limits.any(|(name, _)| name.ends_with("/gpu"))
    })
}

fn reported_at(report: &Value) -> Option<Timestamp> {
    object::text(report, "lastUpdatedTime").parse().ok()
}

/// Reports that come ever more slowly.
fn slow_reports(facts: &Facts) -> Option<Case> {
    let times: Vec<i64> = facts.reports.iter().filter_map(reported_at).map(Timestamp::as_second).collect();
    let (before, now) = slower(&times)?;
    let mut case = Case::new(Reason::Slow).with("before", short_duration(before)).with("now", short_duration(now));
    let text = format!("one every {} at first, one every {} now", short_duration(before), short_duration(now));
    case.quote(&format!("times of the {} reports of the job", times.len()), &text);
    Some(case)
}

/// What usually lay between two times in the first half, and in the last few; `None` unless it has grown by much.
fn slower(times: &[i64]) -> Option<(i64, i64)> {
    let gaps: Vec<i64> = times.windows(2).map(|pair| pair[1].saturating_sub(pair[0])).collect();
    if gaps.len() < STEPS_MIN {
        return None;
    }
    let (before, now) = (median(&gaps[..gaps.len() / 2]), median(&gaps[gaps.len() - RECENT..]));
    (now >= SLOW_SECS && now >= before.max(1).saturating_mul(SLOWER)).then_some((before, now))
}

fn slow(facts: &Facts) -> Option<Case> {
    let is_step = |line: &&Line| {
        ["step", "epoch", "iter", "batch"].iter().any(|word| line.text.to_ascii_lowercase().contains(word))
    };
    for (pod, log) in at_work(facts) {
        let Some(rank) = log.lines.iter().find(is_step).map(|line| line.rank) else { continue };
        let lines: Vec<&Line> = log.lines.iter().filter(|line| line.rank == rank).filter(is_step).collect();
        let times: Vec<i64> = lines.iter().filter_map(|line| line.time).map(Timestamp::as_second).collect();
        if let Some((before, now)) = slower(&times) {
            let mut case =
                Case::new(Reason::Slow).with("before", short_duration(before)).with("now", short_duration(now));
            case.rank = rank;
            lines.iter().rev().take(2).rev().for_each(|line| {
                let when = line.time.map_or(String::new(), |time| format!(", written {time}"));
                case.quote(&format!("{}{when}", source(pod, log, line)), &line.text);
            });
            return Some(case);
        }
    }
    None
}

fn median(gaps: &[i64]) -> i64 {
    let mut sorted = gaps.to_vec();
    sorted.sort_unstable();
    sorted.get(sorted.len() / 2).copied().unwrap_or(0)
}
