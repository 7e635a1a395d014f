//! Why a job failed, or why its containers are started again and again: judged by how they ended, by logs, and by what ended pods from
//! outside.

use crate::context;
use crate::ending::{Ending, endings};
use crate::facts::{Facts, PodFacts};
use crate::mpijob;
use crate::pattern::{Vars, captures};
use crate::pods::{condition, is_node, processes_per_node, ranks, short_duration, signal, signal_name, step};
use crate::reason::Reason;
use crate::signs::Class;
use crate::tell::{Case, Evidence, Process};
use crate::verdict;
use crate::waiting;
use api::object;
use serde_json::Value;

/// How many lines of other processes are named in what is ruled out.
const OTHERS_MAX: usize = 4;

/// Why a job that has failed has failed.
pub(crate) fn of_job(facts: &Facts) -> Case {
    let failed = condition(&facts.job, "Failed");
    if failed.is_some_and(|failed| failed["reason"] == "DeadlineExceeded") {
        let mut case = Case::new(Reason::DeadlineExceeded);
        let spec = &facts.job["spec"];
        let limits = [&spec["activeDeadlineSeconds"], &spec["runPolicy"]["activeDeadlineSeconds"]];
        if let Some(limit) = limits.into_iter().find_map(Value::as_i64) {
            case.vars.insert("limit", short_duration(limit));
        }
        let message = failed.map_or("", |failed| object::text(failed, "message"));
        case.quote(&failed_source(facts), message);
        return case;
    }
    of_ends(facts)
        .or_else(|| from_outside(facts))
        .or_else(|| mpijob::failed(facts))
        .or_else(|| waiting::of_events(facts))
        .unwrap_or_else(|| by_conditions(facts))
}

/// `TrainJob's condition Failed`.
fn failed_source(facts: &Facts) -> String {
    let kind = if mpijob::is(&facts.job) { "MPIJob" } else { "TrainJob" };
    format!("{kind}'s condition Failed")
}

/// What the job's own conditions say, and those of its Jobs, where no pod is left.
fn by_conditions(facts: &Facts) -> Case {
    let failed_jobs = facts.jobs.iter().filter_map(|job| Some((job, condition(job, "Failed")?)));
    let mut reason = Reason::Unknown;
    let mut quotes = Vec::new();
    for (job, failed) in failed_jobs {
        if object::text(failed, "reason") == "DeadlineExceeded" {
            reason = Reason::DeadlineExceeded;
        }
        let text = format!("{}: {}", object::text(failed, "reason"), object::text(failed, "message"));
        quotes.push((format!("condition Failed of Job {}", object::meta(job, "name")), text));
    }
    let mut case = Case::new(reason);
    let message = condition(&facts.job, "Failed").map_or("", |failed| object::text(failed, "message"));
    case.quote(&failed_source(facts), message);
    quotes.iter().for_each(|(source, text)| case.quote(source, text));
    case
}

/// Why containers of the job ended with an error; `None` where none did.
pub(crate) fn of_ends(facts: &Facts) -> Option<Case> {
    let all = endings(facts);
    let first = all.first()?;
    // what the node did to a pod explains how its containers ended
    if (first.was_ended() || first.verdict.is_none())
        && let Some(case) = from_outside(facts)
    {
        return Some(case);
    }
    if first.was_ended()
        && let Some(case) = crate::events::case(facts, |reason| reason == Reason::ProbeFailed)
    {
        return Some(case.with("container", first.container));
    }
    let mut case = of_ending(facts, first);
    rule_out(&mut case, first, &all[1..]);
    Some(case)
}

fn of_ending(facts: &Facts, ending: &Ending<'_>) -> Case {
    let code = ending.process_code();
    let mut case = match &ending.verdict {
        Some(verdict) if fits(verdict, code) => {
            let mut case = Case::new(verdict.reason);
            case.vars.extend(verdict.vars.clone());
            let source = log_source(ending, verdict.rank);
            verdict.quotes.iter().for_each(|quote| case.quote(&source, quote));
            case
        }
        _ => by_code(ending, code),
    };
    // the kernel's word counts for more than the log's
    if ending.reason == "OOMKilled" && case.reason != Reason::CudaOutOfMemory {
        case = Case { reason: Reason::OutOfMemory, ..case };
    }
    let starts = matches!(ending.reason, "StartError" | "ContainerCannotRun" | "RunContainerError");
    if starts {
        case = waiting::cannot_start(ending.message);
        case.quote(&status_source(ending), ending.message);
    }
    if let Some(waited) = mpijob::not_reached(ending.container, ending.message) {
        case = waited;
        case.quote(&status_source(ending), ending.message);
    }
    if !is_node(ending.pod) && step(ending.pod).ends_with("-initializer") && is_general(case.reason) {
        case = Case { reason: Reason::InitializerFailed, ..case };
    }
    if case.reason == Reason::PeerLost {
        of_lost_peer(&mut case, facts, ending);
    }
    describe(&mut case, facts, ending, code);
    // a program that did not start had no signal, whatever code mpirun makes of it
    let was_signalled = signal(code).is_some()
        && !matches!(case.reason, Reason::CommandNotFound | Reason::NotExecutable | Reason::MissingFile);
    if ending.reason == "OOMKilled" || case.evidence.is_empty() || was_signalled {
        let why = match signal(code) {
            Some(signal) => format!(" ({signal})"),
            None => String::new(),
        };
        let reason =
            if matches!(ending.reason, "" | "Error") { String::new() } else { format!(", reason {}", ending.reason) };
        // the node's own words: how much it used, of what
        let words = ending.message.lines().next().filter(|_| ending.reason == "OOMKilled").unwrap_or_default();
        let mark = if words.is_empty() { "" } else { ": " };
        let text = format!("container {} ended with exit code {code}{why}{reason}{mark}{words}", ending.container);
        case.quote(&status_source(ending), &text);
    }
    case.exit_code = Some(code);
    case.process = Some(Process {
        pod: object::meta(ending.pod, "name").to_owned(),
        uid: object::uid(ending.pod).to_owned(),
        step: ending.step.clone(),
        container: ending.container.to_owned(),
        attempt: ending.attempt,
    });
    case
}

/// A connection that broke: to a rank that was done, or, in a job of one process, to something else.
fn of_lost_peer(case: &mut Case, facts: &Facts, ending: &Ending<'_>) {
    if !is_node(ending.pod) {
        return;
    }
    let nodes: Vec<&Value> = facts.pods.iter().map(|pod| &pod.pod).filter(|pod| is_node(pod)).collect();
    let indices: std::collections::BTreeSet<_> = nodes.iter().map(|pod| crate::pods::node_rank(pod)).collect();
    // Python's own exceptions; gloo and the like speak of ranks alone
    let exception = case.vars.get("exception").map_or("", String::as_str);
    let is_plain =
        ["BrokenPipeError", "ConnectionResetError", "ConnectionError"].iter().any(|own| exception.ends_with(own));
    if is_plain && indices.len() == 1 && processes_per_node(ending.pod) == 1 {
        case.reason = Reason::ConnectionLost;
        return;
    }
    let is_done = |status: &Value| {
        let end = &status["state"]["terminated"];
        let at = object::text(end, "finishedAt").parse::<jiff::Timestamp>().ok();
        end["exitCode"] == 0 && at.is_some() && at <= ending.finished
    };
    let done = nodes.into_iter().find(|pod| crate::pods::statuses(pod).any(is_done));
    if let Some(done) = done {
        case.reason = Reason::PeerFinished;
        let who = ranks(done).unwrap_or_else(|| step(done));
        case.quote(
            &format!("status of pod {}", object::meta(done, "name")),
            &format!("{who} ended with exit code 0 before"),
        );
        case.vars.insert("peer", who);
    }
}

fn status_source(ending: &Ending<'_>) -> String {
    format!("status of pod {}", object::meta(ending.pod, "name"))
}

fn is_general(reason: Reason) -> bool {
    matches!(reason, Reason::Exception | Reason::ExitCode | Reason::Unknown)
}

/// Whether what the log says can be why a process ended with this code. A crash leaves no traceback of its own.
fn fits(verdict: &verdict::Verdict, code: i64) -> bool {
    let crash = matches!(code.saturating_sub(128), 4 | 7 | 8 | 11);
    let killed = code == 137;
    match verdict.reason {
        Reason::Exception | Reason::AssertionFailed => !crash && !killed,
        // a command's own usage line, not a word in passing
        Reason::BadArguments => code == 2 || code == 1 || code == 64,
        _ if crash || killed => verdict.from_end < 15,
        _ => true,
    }
}

/// What an exit code alone says.
fn by_code(ending: &Ending<'_>, code: i64) -> Case {
    let reason = match code {
        126 => Reason::NotExecutable,
        127 => Reason::CommandNotFound,
        130 => Reason::Interrupted,
        132 => Reason::IllegalInstruction,
        134 => Reason::Aborted,
        135 => Reason::BusError,
        136 => Reason::FloatingPointException,
        137 => Reason::Killed,
        139 => Reason::SegmentationFault,
        143 => Reason::Terminated,
        152 => Reason::CpuTimeLimit,
        153 => Reason::DiskFull,
        _ if signal(code).is_some() => Reason::Signal,
        _ => Reason::ExitCode,
    };
    let mut case = Case::new(reason);
    if let Some(last) = ending.log.as_deref().and_then(verdict::last_line) {
        if reason == Reason::ExitCode || matches!(code, 126 | 127 | 134) {
            case.quote(&log_source(ending, None), &last);
        }
        case.vars.insert("last", last);
    }
    case
}

/// Who failed, where, and what its limits were.
fn describe(case: &mut Case, facts: &Facts, ending: &Ending<'_>, code: i64) {
    let rank = ending.rank();
    case.rank = rank;
    if let Some(signal) = signal(code) {
        case.vars.insert("signal", signal.to_owned());
    }
    let job = object::meta(&facts.job, "name");
    let flags = if facts.home.flags.is_empty() { String::new() } else { format!(" {}", facts.home.flags.trim()) };
    let (who, only) = match rank {
        Some(rank) => (format!("rank {rank}"), format!("--rank {rank}")),
        None => (ending.step.clone(), format!("--step {}", ending.step)),
    };
    case.logs = Some(if mpijob::is(&facts.job) {
        mpijob::logs(job, &ending.step, &flags)
    } else {
        format!("trainyard logs {job} {only} --tail 50{flags}")
    });
    let vars = &mut case.vars;
    vars.insert("who", who);
    vars.insert("step", ending.step.clone());
    vars.insert("pod", object::meta(ending.pod, "name").to_owned());
    vars.insert("container", ending.container.to_owned());
    vars.insert("code", code.to_string());
    vars.insert("node", object::text(&ending.pod["spec"], "nodeName").to_owned());
    vars.insert("restarts", (ending.restarts.max(1)).to_string());
    let containers = ending.pod["spec"]["containers"].as_array().into_iter().flatten();
    for container in containers.filter(|container| container["name"] == ending.container) {
        if ending.reason == "OOMKilled" && ending.message.starts_with("the machine ran short of memory") {
            // it kept to its limit, if it has one
            vars.insert("message", ending.message.to_owned());
        } else if let Some(limit) = container["resources"]["limits"]["memory"].as_str() {
            vars.insert("memory_limit", limit.to_owned());
        }
        vars.insert("image", object::text(container, "image").to_owned());
    }
    if let Some(module) = vars.get("module") {
        let module = module.trim_matches(['\'', '"']).to_owned();
        vars.insert("package", context::package(&module));
        vars.insert("module", module);
    }
    if let Some(url) = vars.get_mut("url") {
        *url = url.trim_end_matches('.').to_owned();
    }
    if let Some(path) = vars.get("path").map(|path| crate::pattern::quoted(path)) {
        vars.insert("quoted_path", path);
    }
    if let Some(library) = vars.get("library") {
        let name = library.rsplit('/').next().unwrap_or(library);
        let name = name.rsplit(": ").next().unwrap_or(name);
        let stem = name.split(".so").next().unwrap_or(name).to_owned();
        vars.insert("library_stem", stem);
    }
    // a script called by its module's name: `/usr/bin/python3: No module named x`
    if let Some(seconds) = vars.get("seconds") {
        let readable = readable_time(seconds);
        vars.insert("seconds", readable);
    }
}

/// `1800000ms`, `1800000` (milliseconds), `60000ms` as a duration.
fn readable_time(text: &str) -> String {
    let number: String = text.chars().take_while(char::is_ascii_digit).collect();
    let rest = text[number.len()..].trim();
    match (number.parse::<i64>(), rest) {
        (Ok(millis), "ms" | "") if millis >= 1000 => short_duration(millis / 1000),
        _ => text.to_owned(),
    }
}

fn log_source(ending: &Ending<'_>, rank: Option<i64>) -> String {
    let rank = rank.or_else(|| ending.rank()).map_or(String::new(), |rank| format!(" (rank {rank})"));
    format!("{}{rank}, container {}, attempt {}, log", ending.step, ending.container, ending.attempt)
}

/// Names those that ended only because the first one did, and causes that there is no sign of.
fn rule_out(case: &mut Case, first: &Ending<'_>, others: &[Ending<'_>]) {
    let mut told = 0;
    for other in others {
        let who = match other.rank() {
            Some(rank) => format!("{} (rank {rank})", other.step),
            None => ranks(other.pod).map_or(other.step.clone(), |ranks| format!("{} ({ranks})", other.step)),
        };
        let class = other.verdict.as_ref().map(|verdict| verdict.class);
        let last = other.verdict.as_ref().and_then(|verdict| verdict.quotes.last().cloned()).unwrap_or_default();
        let text = if other.was_ended() {
            let signal = signal(other.exit_code).unwrap_or("a signal");
            format!("{who} was ended by {signal} after the first failure")
        } else if class == Some(Class::Consequence)
            || (class == Some(Class::Waited) && first.verdict.as_ref().is_none_or(|v| v.class == Class::Own))
        {
            format!("{who}: \"{}\" is a consequence", shortened(&last))
        } else {
            format!("{who} failed as well, later: exit code {}", other.process_code())
        };
        told += 1;
        if told > OTHERS_MAX {
            case.ruled_out.push(format!("{} more that ended later", others.len() - OTHERS_MAX));
            break;
        }
        case.ruled_out.push(text);
    }
    if matches!(case.reason, Reason::Killed) {
        case.ruled_out.push("no container was reported as OOMKilled".to_owned());
        case.ruled_out.push("no pod was evicted, preempted or deleted, as far as events say".to_owned());
    }
    if processes_per_node(first.pod) > 1
        && let Some(child) = first.child()
        && let Some(code) = child.exit_code
        && first.exit_code == 1
    {
        let how = if code < 0 {
            signal_name(code.saturating_neg()).map_or(format!("signal {}", code.saturating_neg()), str::to_owned)
        } else {
            format!("exit code {code}")
        };
        case.ruled_out.push(format!("torchrun itself did not fail: its worker ended first, by {how}"));
    }
}

fn shortened(text: &str) -> String {
    const MOST: usize = 100;
    if text.chars().count() <= MOST { text.to_owned() } else { text.chars().take(MOST).chain(['…']).collect() }
}

/// What ended a pod from outside: eviction, preemption, a lost node, a deletion.
pub(crate) fn from_outside(facts: &Facts) -> Option<Case> {
    facts.pods.iter().filter_map(|pod| of_pod(facts, pod)).min_by_key(|case| case.reason == Reason::PodDeleted)
}

/// The same of a job that runs: a pod that is gone, and whose step has another one now, says nothing of it any more.
pub(crate) fn from_outside_now(facts: &Facts) -> Option<Case> {
    let is_replaced =
        |pod: &PodFacts| !pod.live && facts.pods.iter().any(|other| other.live && step(&other.pod) == step(&pod.pod));
    let pods = facts.pods.iter().filter(|pod| !is_replaced(pod));
    pods.filter_map(|pod| of_pod(facts, pod)).min_by_key(|case| case.reason == Reason::PodDeleted)
}

fn of_pod(facts: &Facts, pod: &PodFacts) -> Option<Case> {
    let status = &pod.pod["status"];
    let disrupted = condition(&pod.pod, "DisruptionTarget");
    let why = disrupted.map_or("", |condition| object::text(condition, "reason"));
    let node = object::text(&pod.pod["spec"], "nodeName");
    let reason = match (object::text(status, "reason"), why) {
        ("Evicted", _) => Reason::Evicted,
        ("NodeLost", _) => Reason::NodeLost,
        ("Shutdown" | "Terminated" | "NodeShutdown", _) => Reason::NodeShutdown,
        ("Preempting" | "Preempted", _) | (_, "PreemptionByScheduler") => Reason::Preempted,
        ("SupervisorLost", _) => Reason::SupervisorLost,
        ("DeadlineExceeded", _) => Reason::DeadlineExceeded,
        ("UnexpectedAdmissionError", _) => Reason::Busy,
        ("NodeAffinity", _) => Reason::NodeSelector,
        (reason, _) if reason.starts_with("OutOf") => Reason::Busy,
        _ if is_unknown(&pod.pod) => Reason::NodeLost,
        (_, "DeletionByTaintManager" | "DeletionByPodGC") => Reason::NodeLost,
        (_, "EvictionByEvictionAPI") => Reason::NodeShutdown,
        (_, "TerminationByKubelet") => Reason::Evicted,
        _ if !node.is_empty() && !facts.nodes.is_empty() && node_is_lost(facts, node) && !is_over(&pod.pod) => {
            Reason::NodeLost
        }
        _ => return None,
    };
    let mut case = Case::new(reason);
    let name = object::meta(&pod.pod, "name");
    let message = match object::text(status, "message") {
        "" => disrupted.map_or("", |condition| object::text(condition, "message")),
        message => message,
    };
    let vars = &mut case.vars;
    vars.insert("who", step(&pod.pod));
    vars.insert("step", step(&pod.pod));
    vars.insert("pod", name.to_owned());
    vars.insert("node", node.to_owned());
    vars.insert("message", message.trim().to_owned());
    if reason == Reason::NodeLost {
        // since when it counts as lost, or when its pods were given up
        let given_up = disrupted.map_or("", |condition| object::text(condition, "lastTransitionTime"));
        let silent =
            facts.nodes.iter().find(|held| object::meta(held, "name") == node).and_then(crate::pods::readiness);
        let silent = silent.filter(|ready| ready["status"] != "True");
        let since = silent.map_or("", |ready| object::text(ready, "lastTransitionTime"));
        let known = [("given_up", given_up), ("since", since)].into_iter().find(|(_, time)| !time.is_empty());
        vars.extend(known.map(|(name, time)| (name, time.to_owned())));
    }
    let resource = object::text(status, "reason").strip_prefix("OutOf").map(str::to_owned).or_else(|| {
        let held = captures("unavailable for {resource}. ", message)?;
        held.into_iter().next().map(|(_, resource)| resource)
    });
    vars.insert("resource", resource.unwrap_or_default());
    if let Some(limit) = pod.pod["spec"]["activeDeadlineSeconds"].as_i64() {
        vars.insert("limit", short_duration(limit));
    }
    case.rank = crate::pods::node_rank(&pod.pod).filter(|_| is_node(&pod.pod) && processes_per_node(&pod.pod) <= 1);
    let text = if message.is_empty() { reason.meaning() } else { message };
    case.evidence.push(Evidence { source: format!("status of pod {name}"), text: text.trim().to_owned() });
    if let Some(code) =
        crate::pods::statuses(&pod.pod).find_map(|status| status["state"]["terminated"]["exitCode"].as_i64())
    {
        case.exit_code = Some(code);
    }
    Some(case)
}

/// A kubelet that came back found no trace of the container.
fn is_unknown(pod: &Value) -> bool {
    crate::pods::statuses(pod).any(|status| status["state"]["terminated"]["reason"] == "ContainerStatusUnknown")
}

fn is_over(pod: &Value) -> bool {
    matches!(object::text(&pod["status"], "phase"), "Succeeded" | "Failed")
}

fn node_is_lost(facts: &Facts, name: &str) -> bool {
    match facts.nodes.iter().find(|node| object::meta(node, "name") == name) {
        None => true,
        Some(node) => condition(node, "Ready").is_none(),
    }
}

/// Adds what `Vars` of the job hold, without changing what the case says itself.
pub(crate) fn complete(mut vars: Vars, case: &Vars) -> Vars {
    vars.extend(case.iter().map(|(name, text)| (*name, text.clone())));
    vars
}
