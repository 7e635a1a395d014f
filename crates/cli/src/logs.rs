//! `trainyard logs`: the lines of a job's runs, also when its pods are gone.

use crate::exit;
use crate::output::is_fancy;
use crate::screen::Screen;
use crate::tell;
use api::object;
use client::codes::ErrorCode;
use client::{ClientError, Cluster};
use facts::follow::follow_from;
use facts::history::{self, Window};
use facts::reader::is_gone;
use facts::run_log::{Unread, line, open};
use facts::{Piece, missing};
use grammar::{Format, LogsArgs};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use std::collections::{BTreeSet, VecDeque};
use std::io::Write;
use view::fold::Fold;
use view::lines::{Bars, Drawn, Line, Show};
use view::marks::Pieces;
use view::runs::{Run, Runs, Which};
use view::state::Phase;

/// How much later than its start a container may print its first line before we say that lines may be missing.
const SILENT_MAX: SignedDuration = SignedDuration::from_secs(30);
/// What torchrun may say of itself at a log's end: `--tail` counts lines that are shown.
const NOISE_MAX: i64 = 1000;

/// `trainyard logs`.
pub(crate) async fn logs(cluster: &Cluster, args: &LogsArgs) -> Result<u8, ClientError> {
    let job = cluster.job(&args.job).await?;
    let show = Show {
        rank: args.rank,
        step: args.step.clone(),
        tail: args.tail,
        since: args.since,
        grep: args.grep.clone(),
        all: args.all,
        no_prefix: args.no_prefix,
        timestamps: args.timestamps,
        attempts: args.which() == Which::All,
        json: matches!(args.output.output, Format::Json),
        progress: args.follow && !matches!(args.output.output, Format::Json),
    };
    let past = history::of(cluster, history::Job::Train(&args.job)).await?;
    let (runs, pods) = match past {
        Some(past) => (Runs::of_past(&past), past.pods.into_iter().filter(|pod| pod.live).map(|pod| pod.pod).collect()),
        None => {
            let pods = cluster.pods(&args.job).await?;
            (Runs::of_pods(&pods), pods)
        }
    };
    if args.follow {
        let mut screen = Screen::new(&show, &args.job, &cluster.flags);
        let is_finished = Phase::of(&job).is_finished();
        let ended = follow_from(cluster, &args.job, &show, runs, is_finished, &mut screen, tell).await?;
        return Ok(exit::of_ended(&ended));
    }
    let which = args.which();
    show.check(&args.job, &runs.sources()).map_err(missing)?;
    let chosen = runs.choose(&args.job, which, |source| show.wants_pod(source)).map_err(missing)?;
    let mut printer = Printer::new(&show);
    let mut failed = None;
    for run in chosen {
        match printer.print(cluster, &args.job, run).await {
            Ok(()) => {}
            // Its job ended meanwhile and took it along.
            Err(Unread::Api(status)) if is_gone(&status, &run.source.pod) => {}
            // one node that does not answer should not hide the others' logs
            Err(Unread::Api(status)) if status.code != 403 => {
                eprintln!("no log of pod {} from node {}: {}", run.source.pod, run.on, status.message.trim());
                failed = Some(exit::FAILURE);
            }
            Err(Unread::Api(status)) => return Err(kube::Error::Api(status).into()),
            Err(Unread::Other(error)) => return Err(error),
        }
    }
    if printer.printed == 0 {
        say_why_nothing(&job, &args.job, &pods, &runs, &show);
    }
    let most = runs.most(|source| show.wants_pod(source));
    if which == Which::Last && most > 1 {
        let (job, flags) = (&args.job, &cluster.flags);
        eprintln!(
            "this was the last of {most} attempts; earlier ones: trainyard logs {job}{flags} --previous, --attempt N or --attempt all"
        );
    }
    Ok(failed.unwrap_or(exit::OK))
}

struct Printer<'a> {
    show: &'a Show,
    colour: bool,
    printed: usize,
    bars: Bars,
}

impl<'a> Printer<'a> {
    fn new(show: &'a Show) -> Self {
        Self { show, colour: is_fancy(&std::io::stdout()), printed: 0, bars: Bars::default() }
    }

    /// Prints the lines of one run.
    async fn print(&mut self, cluster: &Cluster, job: &str, run: &Run) -> Result<(), Unread> {
        let mut read = facts::Pieces::new(open(cluster, history::Job::Train(job), run, window(self.show)).await?);
        let (mut pieces, mut fold) = (Pieces::default(), Fold::default());
        let mut last: VecDeque<String> = VecDeque::new();
        let mut is_first = true;
        loop {
            let next = read.next().await;
            let next = next.map_err(|error| {
                ClientError::Api(ErrorCode::StreamLost, format!("the log of pod {} broke off: {error}", run.source.pod))
            });
            let Some(piece) = next.map_err(Unread::Other)? else { break };
            let Piece::Line { text: raw, was_redrawn } = piece else { continue };
            let (time, text) = history::stamped(&raw);
            if std::mem::take(&mut is_first) {
                self.say_what_is_missing(run, time);
            }
            let text = run.source.whole(&mut pieces, text);
            let drawn = if was_redrawn { Drawn::Again } else { Drawn::Once };
            self.take(Line { drawn, ..line(run, time, text) }, &mut fold, &mut last);
        }
        for text in pieces.rest() {
            self.take(line(run, "", text), &mut fold, &mut last);
        }
        fold.finish().into_iter().for_each(|folded| self.show(Line::of(folded), &mut last));
        self.bars.rest().into_iter().for_each(|line| self.shown(line, &mut last));
        for text in last {
            self.put(&text);
        }
        let _ = std::io::stdout().flush();
        Ok(())
    }

    fn take(&mut self, line: Line, fold: &mut Fold<Line>, last: &mut VecDeque<String>) {
        if self.show.folds() {
            fold.push(line).into_iter().for_each(|folded| self.show(Line::of(folded), last));
        } else {
            self.show(line, last);
        }
    }

    /// Prints a line, or keeps it where only the last ones are wanted.
    fn show(&mut self, line: Line, last: &mut VecDeque<String>) {
        self.bars.take(line).into_iter().for_each(|line| self.shown(line, last));
    }

    fn shown(&mut self, line: Line, last: &mut VecDeque<String>) {
        let Some(text) = self.show.render(&line, self.colour, "--all shows them") else { return };
        match self.show.tail.map(|tail| usize::try_from(tail).unwrap_or(0)) {
            None => self.put(&text),
            Some(tail) => {
                last.push_back(text);
                if last.len() > tail {
                    last.pop_front();
                }
            }
        }
    }

    fn put(&mut self, text: &str) {
        self.printed += 1;
        // a closed pipe (`| head`) ends the command, as no reader is left
        if writeln!(std::io::stdout().lock(), "{text}").is_err() {
            std::process::exit(i32::from(exit::OK));
        }
    }

    /// A log that does not begin where the run did.
    fn say_what_is_missing(&self, run: &Run, first: &str) {
        if self.show.tail.is_some() || self.show.since.is_some() {
            return;
        }
        let pod = &run.source.pod;
        if run.kept {
            if run.cut {
                eprintln!("the beginning of the log of pod {pod} is gone: only the newest part of a long log is kept");
            }
            return;
        }
        let (Ok(first), Ok(started)) = (first.parse::<Timestamp>(), run.started.parse::<Timestamp>()) else { return };
        let silent = first.duration_since(started);
        if silent > SILENT_MAX {
            eprintln!(
                "the log of pod {pod} begins {} after its start: what it printed before, if anything, was rotated away by its node",
                view::state::short_duration(silent.as_secs())
            );
        }
    }
}

/// Which lines of each run are read. What is left out of the lines afterwards must not be counted before.
fn window(show: &Show) -> Window {
    let tail = show.tail.filter(|_| show.grep.is_none() && show.rank.is_none());
    let tail = tail.map(|tail| if show.folds() { tail.saturating_add(NOISE_MAX) } else { tail });
    Window { tail, since: show.since }
}

fn say_why_nothing(job: &Value, name: &str, pods: &[Value], runs: &Runs, show: &Show) {
    let state = Phase::of(job).as_str().to_lowercase();
    if !runs.is_empty() && (show.grep.is_some() || show.since.is_some() || show.rank.is_some()) {
        eprintln!("no log lines: TrainJob \"{name}\" is {state}, and of what it printed nothing is like that");
        return;
    }
    let reasons: BTreeSet<String> = pods.iter().filter_map(why_silent).collect();
    let pods = match pods.len() {
        0 => "no pods".to_owned(),
        1 => "1 pod".to_owned(),
        n => format!("{n} pods"),
    };
    eprintln!("no log lines: TrainJob \"{name}\" is {state}, with {pods}");
    reasons.iter().for_each(|reason| eprintln!("  {reason}"));
}

/// Why a pod has no log.
fn why_silent(pod: &Value) -> Option<String> {
    let unbound = || {
        let name = object::meta(pod, "name");
        object::text(&pod["spec"], "nodeName")
            .is_empty()
            .then(|| format!("pod {name} is on no node, and logs are read from nodes"))
    };
    view::state::why_pending(pod).or_else(unbound)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_lost_node_is_told_from_a_pod_that_is_gone() {
        let answer = |code: u16, details: Value| {
            let status = json!({"code": code, "message": "m", "reason": "NotFound", "details": details});
            is_gone(&serde_json::from_value(status).expect("a Status"), "p")
        };
        assert!(answer(404, json!({"name": "p", "kind": "pods"})));
        assert!(answer(404, json!({})));
        assert!(!answer(404, json!({"name": "node-1", "kind": "pods"})));
        assert!(!answer(500, json!({})));
    }
}
