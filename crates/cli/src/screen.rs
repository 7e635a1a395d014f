//! The display of a followed job: log lines on stdout, its state on stderr.

use crate::exit;
use crate::output::is_fancy;
use api::foreign::visible;
use api::object;
use facts::follow::Audience;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{IsTerminal, Write};
use view::downloads::{self, News};
use view::lines::{Bars, Line, Show};
use view::progress;
use view::state::{Attempts, Phase, step};

/// Columns of a terminal that does not say.
const COLUMNS: usize = 80;
/// Bars of ranks that the status line shows, as far as there is room.
const BARS_MAX: usize = 4;

pub(crate) struct Screen<'a> {
    show: &'a Show,
    /// How to see what is folded.
    unfold: String,
    colour: bool,
    /// Redraw the status in place; otherwise it is printed when it changes.
    live: bool,
    status: Status,
    shown_reasons: BTreeSet<String>,
    bars: Bars,
}

/// The line that says where the job stands.
#[derive(Debug, Default)]
struct Status {
    text: String,
    has_run: bool,
    /// How many pods ran at most since all of them were pending.
    most: usize,
    /// How far initializers are, by step.
    downloads: BTreeMap<String, String>,
}

impl Status {
    /// Follows the job; whether the line has changed. While pods end, one after the other, a job is neither pending nor
    /// running again: nothing is said until it is known what comes of it.
    fn follow<'p>(&mut self, job: &Value, pods: impl Iterator<Item = &'p Value>, live: bool) -> bool {
        let (mut running, mut over, mut all) = (0, 0, 0);
        for pod in pods.filter(|pod| !object::is_terminating(pod)) {
            all += 1;
            match pod["status"]["phase"].as_str() {
                Some("Running") => running += 1,
                Some("Succeeded" | "Failed") => over += 1,
                _ => {}
            }
        }
        let mut phase = Phase::of(job);
        if phase.is_finished() {
            let was = std::mem::take(&mut self.text);
            return !was.is_empty();
        }
        if all == over && self.has_run && phase != Phase::Suspended {
            return false;
        }
        // the job's own status comes after those of its pods
        if phase == Phase::Pending && running > 0 && running + over == all {
            phase = Phase::Running;
        }
        self.has_run |= running > 0;
        if over == 0 {
            self.most = running;
        }
        if !live && running < self.most {
            return false;
        }
        // a log gets no line for each pod that comes: what they wait for is said beside
        let all = if !live && phase == Phase::Pending { 0 } else { all };
        let mut text = progress::line_in(job, phase, running, all);
        for (step, bar) in &self.downloads {
            text.push_str(&format!(" {step} {bar}"));
        }
        let changed = text != self.text;
        self.text = text;
        changed
    }
}

impl<'a> Screen<'a> {
    /// The screen of a job; `flags` are those of commands that are proposed.
    pub(crate) fn new(show: &'a Show, job: &str, flags: &str) -> Self {
        let unfold = match show.all {
            true => String::new(),
            false => format!("trainyard logs {job}{flags} --all shows them"),
        };
        let is_terminal = std::io::stderr().is_terminal() && std::io::stdout().is_terminal();
        let is_dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        Self {
            show,
            unfold,
            colour: is_fancy(&std::io::stdout()),
            live: is_terminal && !is_dumb,
            status: Status::default(),
            shown_reasons: BTreeSet::new(),
            bars: Bars::default(),
        }
    }

    fn put(&self, lines: Vec<Line>) {
        for text in lines.iter().filter_map(|line| self.show.render(line, self.colour, &self.unfold)) {
            // a closed pipe (`| head`) ends the command, as no reader is left
            if writeln!(std::io::stdout().lock(), "{text}").is_err() {
                std::process::exit(i32::from(exit::OK));
            }
        }
    }

    /// The state of the job, then of its bars.
    fn state(&self) -> String {
        let bars = self.bars.states().take(BARS_MAX);
        [self.status.text.clone()]
            .into_iter()
            .filter(|text| !text.is_empty())
            .chain(bars)
            .collect::<Vec<_>>()
            .join("  ")
    }

    fn say_once(&mut self, note: String) {
        if self.shown_reasons.insert(without_amounts(&note)) {
            self.note(&note);
        }
    }

    pub(crate) fn clear(&self) {
        if self.live && self.show.progress {
            erase();
        }
    }

    fn redraw(&self) {
        let text = self.state();
        if self.live && self.show.progress && !text.is_empty() {
            let columns = terminal_size::terminal_size_of(std::io::stderr());
            let columns = columns.map_or(COLUMNS, |(width, _)| usize::from(width.0));
            let text = fit(&text, columns);
            if self.colour {
                raw(&format!("\x1b[2m{}\x1b[0m", visible(&text)));
            } else {
                eprint!("{text}");
            }
            let _ = std::io::stderr().flush();
        }
    }
}

impl Audience for Screen<'_> {
    fn line(&mut self, line: Line) {
        // what is drawn as a bar need not stand there as a line, too
        if self.live && self.show.progress {
            let step = &line.source.step;
            match downloads::news(step, &line.text) {
                Some(News::Progress(download)) => {
                    self.status.downloads.insert(step.clone(), download.bar());
                    return;
                }
                Some(News::Done) => drop(self.status.downloads.remove(step)),
                None => {}
            }
        }
        let lines = self.bars.take(line);
        self.clear();
        self.put(lines);
        self.redraw();
    }

    /// Prints the last states of bars: no further line comes.
    fn finish(&mut self) {
        self.clear();
        let rest = self.bars.rest();
        self.put(rest);
    }

    fn status<'p>(&mut self, job: &Value, pods: impl Iterator<Item = &'p Value>) {
        if let Some(note) = next_attempt(job) {
            self.say_once(note);
        }
        if !self.show.progress {
            return;
        }
        let was_drawn = !self.status.text.is_empty();
        if !self.status.follow(job, pods, self.live) {
            return;
        }
        if self.live {
            if was_drawn {
                erase();
            }
            self.redraw();
        } else if !self.status.text.is_empty() {
            eprintln!("{}: {}", object::meta(job, "name"), self.status.text);
        }
    }

    /// Says once why a pod cannot start, and each time that a container is tried again.
    fn pods<'p>(&mut self, pods: impl Iterator<Item = &'p Value>) {
        for pod in pods.filter(|pod| !object::is_terminating(pod)) {
            let waits = view::state::why_pending(pod).map(|reason| format!("waiting: {reason}"));
            let again = view::state::restarts(pod).into_iter().map(|text| format!("{}: {text}", step(pod)));
            waits.into_iter().chain(again).for_each(|note| self.say_once(note));
        }
    }

    /// Reports the processes that still end: in place of the status, or as a line when their number changes.
    fn ending(&mut self, text: Option<String>) {
        let Some(text) = text else { return };
        if self.live && self.show.progress {
            self.clear();
            self.status.text = text;
            self.redraw();
        } else {
            let number = text.split(" are still").next().unwrap_or_default().to_owned();
            if self.shown_reasons.insert(number) {
                eprintln!("{text}");
            }
        }
    }

    /// Says something beside the log lines.
    fn note(&mut self, note: &str) {
        self.clear();
        eprintln!("{note}");
        self.redraw();
    }
}

/// What is said when an attempt has failed and another follows.
fn next_attempt(job: &Value) -> Option<String> {
    let Attempts { now, most, .. } = Attempts::of(job);
    let failed = now.checked_sub(1).filter(|failed| *failed > 0 && !Phase::of(job).is_finished())?;
    Some(format!("attempt {failed} of {most} failed; all ranks start again (attempt {now})"))
}

/// A note without what stands in parentheses: amounts, which change with each pod that comes or goes.
fn without_amounts(note: &str) -> String {
    let mut depth = 0_u32;
    let kept = note.chars().filter(|c| {
        depth = match c {
            '(' => depth.saturating_add(1),
            ')' => depth.saturating_sub(1),
            _ => return depth == 0,
        };
        false
    });
    kept.collect()
}

/// Writes a sequence of our own to the terminal.
fn raw(text: &str) {
    let mut err = std::io::stderr().lock();
    let _ = err.write_all(text.as_bytes()).and_then(|()| err.flush()); // a terminal that is gone shows nothing
}

pub(crate) fn erase() {
    raw("\r\x1b[K");
}

/// As much of a line as stays on one row: a full row would wrap when the next character comes.
fn fit(text: &str, columns: usize) -> String {
    let most = columns.saturating_sub(1);
    if text.chars().count() <= most {
        return text.to_owned();
    }
    let mut short: String = text.chars().take(most.saturating_sub(1)).collect();
    if most > 0 {
        short.push('…');
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_status_fits_into_any_width() {
        let text = "running 2/2 pods [############            ] 50% 70s left loss=0.3";
        assert_eq!(fit(text, 200), text);
        assert_eq!(fit(text, 20), "running 2/2 pods […");
        for columns in 0..100 {
            assert!(fit(text, columns).chars().count() <= columns.saturating_sub(1), "{columns}");
        }
    }

    #[test]
    fn a_retry_is_told_while_the_job_goes_on() {
        let job = |attempt: &str, status: Value| json!({"metadata": {"annotations": {"trainyard.dev/retries": "2", "trainyard.dev/attempt": attempt}}, "status": status});
        assert_eq!(next_attempt(&json!({})), None);
        assert_eq!(next_attempt(&job("1", json!({}))), None);
        let told = next_attempt(&job("2", json!({})));
        assert_eq!(told.as_deref(), Some("attempt 1 of 3 failed; all ranks start again (attempt 2)"));
        let failed = json!({"conditions": [{"type": "Failed", "status": "True"}]});
        assert_eq!(next_attempt(&job("3", failed)), None, "its end says more");
    }

    #[test]
    fn states_do_not_flap_at_the_end() {
        let job = |status: Value| json!({"status": status});
        let pods = |phases: &[&str]| phases.iter().map(|p| json!({"status": {"phase": p}})).collect::<Vec<_>>();
        let ready = job(json!({"jobsStatus": [{"ready": 1}]}));
        let idle = job(json!({}));
        let done = job(json!({"conditions": [{"type": "Complete", "status": "True"}],
            "trainerStatus": {"progressPercentage": 100}}));
        let course = [
            (&idle, pods(&[])),
            (&idle, pods(&["Pending", "Pending"])),
            (&idle, pods(&["Running", "Pending"])),
            (&idle, pods(&["Running", "Running"])),
            (&ready, pods(&["Running", "Running"])),
            (&ready, pods(&["Running", "Succeeded"])),
            (&ready, pods(&["Succeeded", "Succeeded"])),
            (&idle, pods(&["Succeeded", "Succeeded"])),
            (&idle, pods(&[])),
            (&done, pods(&[])),
        ];
        let told = |live: bool| {
            let mut status = Status::default();
            let mut told = Vec::new();
            for (job, pods) in &course {
                if status.follow(job, pods.iter(), live) {
                    told.push(status.text.clone());
                }
            }
            told
        };
        let rise = ["pending", "pending 0/2 pods", "pending 1/2 pods", "running 2/2 pods"];
        assert_eq!(told(true), [&rise[..], &["running 1/2 pods", ""]].concat());
        assert_eq!(told(false), ["pending", "running 2/2 pods", ""], "a log is not redrawn");
    }

    #[test]
    fn a_download_has_a_bar() {
        let mut status = Status::default();
        status.downloads.insert("dataset-initializer".to_owned(), "[#] 7%".to_owned());
        let pods = [json!({"status": {"phase": "Running"}})];
        assert!(status.follow(&json!({}), pods.iter(), true));
        assert_eq!(status.text, "running 1/1 pods dataset-initializer [#] 7%");
        status.downloads.clear();
        assert!(status.follow(&json!({}), pods.iter(), true) && status.text == "running 1/1 pods");
    }

    #[test]
    fn a_job_that_starts_again_is_pending_again() {
        let mut status = Status::default();
        let job = json!({});
        let mut told = Vec::new();
        for phases in [&["Running"][..], &["Failed"], &["Failed", "Pending"], &["Failed", "Running"]] {
            let pods: Vec<Value> = phases.iter().map(|p| json!({"status": {"phase": p}})).collect();
            if status.follow(&job, pods.iter(), true) {
                told.push(status.text.clone());
            }
        }
        assert_eq!(told, ["running 1/1 pods", "pending 0/2 pods", "running 1/2 pods"]);
    }
}
