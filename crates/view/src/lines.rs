//! Log lines: which rank a line belongs to, which lines are asked for, and how a line is printed.

use crate::NoSuch;
use crate::bars::is_bar;
use crate::fold::{Folded, Text};
use crate::marks::{self, Pieces};
use crate::state::{node_rank, processes_per_node, step};
use api::object;
use jiff::Timestamp;
use regex::Regex;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What to show, and how.
#[derive(Clone, Debug, Default)]
pub struct Show {
    pub rank: Option<i64>,
    pub step: Option<String>,
    pub tail: Option<i64>,
    /// Only lines written at or after this time.
    pub since: Option<Timestamp>,
    /// Only lines that match.
    pub grep: Option<Regex>,
    /// What torchrun says of itself, too.
    pub all: bool,
    pub no_prefix: bool,
    /// Print the time of each line.
    pub timestamps: bool,
    /// Say which attempt a line is of.
    pub attempts: bool,
    /// One JSON object a line.
    pub json: bool,
    /// Keep a status line on stderr.
    pub progress: bool,
}

/// Whose log a line is from.
#[derive(Clone, Debug)]
pub struct Source {
    pub pod: String,
    pub step: String,
    pub node: Option<i64>,
    pub processes: i64,
    /// Part of an MPI job, where mpirun prints what all ranks say.
    pub mpi: bool,
    /// Which run of its step it is, from 1.
    pub attempt: i64,
}

/// A line of a log.
#[derive(Clone, Debug)]
pub struct Line {
    pub source: Arc<Source>,
    /// RFC 3339; empty where it is not known.
    pub time: String,
    pub text: String,
    /// So many lines that torchrun said of itself stand behind it; 0: it is a line.
    pub folded: usize,
    pub drawn: Drawn,
}

/// How a line came about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Drawn {
    /// It was printed.
    #[default]
    Once,
    /// It was redrawn by carriage returns, and has ended.
    Again,
    /// It is being redrawn: this is its state.
    Still,
}

/// Progress bars, of which only the last state becomes a line: when their rank prints something else, or at the end.
#[derive(Debug, Default)]
pub struct Bars {
    held: BTreeMap<(String, Option<i64>), Line>,
    /// Ranks whose bar was printed before its line ended: that end is no line of its own.
    open: BTreeSet<(String, Option<i64>)>,
}

impl Bars {
    /// Takes a line in; the lines to print now.
    pub fn take(&mut self, line: Line) -> Vec<Line> {
        let (rank, text) = line.source.rank_of(&line.text);
        let key = (line.source.pod.clone(), rank);
        if line.drawn == Drawn::Still || (line.folded == 0 && is_bar(text)) {
            self.held.insert(key, line);
            return Vec::new();
        }
        // the end of a bar's line, or of a carriage return that a launcher took for one
        if text.trim().is_empty() && line.folded == 0 && (self.held.contains_key(&key) || self.open.remove(&key)) {
            return Vec::new();
        }
        // a line that was redrawn is the end of its own states
        let before = self.held.remove(&key).filter(|_| line.drawn == Drawn::Once);
        if before.is_some() {
            self.open.insert(key);
        }
        before.into_iter().chain([line]).collect()
    }

    /// The last states of all bars.
    pub fn rest(&mut self) -> Vec<Line> {
        std::mem::take(&mut self.held).into_values().collect()
    }

    /// What they show now: `rank 0: 17%|█▋ …`.
    pub fn states(&self) -> impl Iterator<Item = String> {
        self.held.values().map(|line| {
            let (rank, text) = line.source.rank_of(&line.text);
            let whose = rank.map_or_else(|| line.source.step.clone(), |rank| format!("rank {rank}"));
            format!("{whose}: {}", text.trim())
        })
    }
}

impl Text for Line {
    fn text(&self) -> &str {
        &self.text
    }
}

impl Line {
    pub fn of(folded: Folded<Self>) -> Self {
        match folded {
            Folded::Line(line) => line,
            Folded::Lines(count, first) => Self { folded: count, ..first },
        }
    }
}

impl Source {
    pub fn of(pod: &Value, attempt: i64) -> Self {
        let step = step(pod);
        let mpi = is_mpi(pod);
        let node = if mpi || step.ends_with("-initializer") { None } else { node_rank(pod) };
        let (pod, processes) = (object::meta(pod, "name").to_owned(), processes_per_node(pod).max(1));
        Self { pod, step, node, processes, mpi, attempt }
    }

    /// A line of the log, put together where its launcher tore it.
    pub fn whole(&self, pieces: &mut Pieces, text: &str) -> String {
        if self.mpi { pieces.of_mpirun(text) } else { pieces.of_torchrun(text, self.processes) }
    }

    /// The rank that printed a line, and the line without the mark that torchrun's tee puts before it
    /// (`[default1]:`, the local rank), or mpirun (`[1,3]<stdout>:`, rank 3 of its first application).
    pub fn rank_of<'a>(&self, text: &'a str) -> (Option<i64>, &'a str) {
        if self.mpi {
            return marks::of_mpirun(text).map_or((None, text), |(rank, line)| (Some(rank), line));
        }
        let Some(node) = self.node else { return (None, text) };
        let marked = match marks::of_torchrun(text) {
            Some(("rank", rank, _)) if self.processes > 1 && rank.checked_div(self.processes) == Some(node) => {
                return (Some(rank), text);
            }
            Some(("rank", ..)) | None => None,
            Some((_, local, line)) => Some((local, line)),
        };
        match marked {
            Some((local, line)) if local < self.processes => (Some(node * self.processes + local), line),
            Some(_) | None if self.processes == 1 => (Some(node), text),
            Some(_) | None => (None, text),
        }
    }
}

impl Show {
    pub fn wants_pod(&self, source: &Source) -> bool {
        let step = self.step.as_ref().is_none_or(|step| *step == source.step);
        let rank = self.rank.is_none_or(|rank| source.mpi || source.node == Some(rank / source.processes));
        step && rank
    }

    /// Whether torchrun's lines are folded. Data is complete.
    pub fn folds(&self) -> bool {
        !self.all && !self.json
    }

    /// Errors: none of the job's pods has the rank or step that was asked for. Without pods nobody knows.
    pub fn check(&self, job: &str, sources: &[&Source]) -> Result<(), NoSuch> {
        if sources.is_empty() || sources.iter().any(|source| self.wants_pod(source)) {
            return Ok(());
        }
        if let Some(rank) = self.rank {
            let ends = sources.iter().filter_map(|source| Some((source.node? + 1) * source.processes));
            let last = ends.max().unwrap_or(0) - 1;
            return Err(NoSuch::Rank(match last {
                ..0 => format!("TrainJob \"{job}\" has no ranks"),
                0 => format!("TrainJob \"{job}\" has no rank {rank}: its only rank is 0"),
                1.. => format!("TrainJob \"{job}\" has no rank {rank}: its ranks are 0 to {last}"),
            }));
        }
        let steps: BTreeSet<&str> = sources.iter().map(|source| source.step.as_str()).collect();
        let steps: Vec<&str> = steps.into_iter().collect();
        let step = self.step.as_deref().unwrap_or_default();
        Err(NoSuch::Rank(format!("TrainJob \"{job}\" has no step {step:?}; its steps: {}", steps.join(", "))))
    }

    /// Whether a line is asked for.
    pub fn wants(&self, line: &Line) -> bool {
        let (rank, text) = line.source.rank_of(&line.text);
        if self.rank.is_some() && rank != self.rank {
            return false;
        }
        // pods are asked by whole seconds
        let is_earlier = |since| line.time.parse::<Timestamp>().is_ok_and(|time| time < since);
        if self.since.is_some_and(is_earlier) {
            return false;
        }
        self.grep.as_ref().is_none_or(|grep| line.folded == 0 && grep.is_match(text))
    }

    /// The line as it is printed; `None` where another rank, or other lines, were asked for. `unfold` says how to see
    /// lines that are folded.
    pub fn render(&self, line: &Line, colour: bool, unfold: &str) -> Option<String> {
        if !self.wants(line) {
            return None;
        }
        let (rank, text) = line.source.rank_of(&line.text);
        if self.json {
            let Source { step, pod, attempt, .. } = &*line.source;
            let shown =
                json!({"step": step, "rank": rank, "pod": pod, "attempt": attempt, "time": line.time, "line": text});
            return Some(shown.to_string());
        }
        let note = match line.folded {
            0 => None,
            1 => Some(format!("[torchrun: 1 line folded; {unfold}]")),
            n => Some(format!("[torchrun: {n} lines folded; {unfold}]")),
        };
        let time = if self.timestamps && !line.time.is_empty() { format!("{} ", line.time) } else { String::new() };
        let text = format!("{time}{}", note.as_deref().unwrap_or(text));
        if self.no_prefix {
            return Some(text);
        }
        let of = match self.attempts {
            true => format!(", attempt {}", line.source.attempt),
            false => String::new(),
        };
        let mark = match rank {
            Some(rank) => format!("[rank {rank}{of}]"),
            None => format!("[{}{of}]", line.source.step),
        };
        match rank {
            Some(rank) if colour => Some(format!("\x1b[3{}m{mark}\x1b[0m {text}", 1 + rank % 6)),
            Some(_) | None => Some(format!("{mark} {text}")),
        }
    }
}

/// Whether the pod has the keys with which MPI's launcher reaches its nodes.
fn is_mpi(pod: &Value) -> bool {
    pod["spec"]["volumes"].as_array().into_iter().flatten().any(|volume| volume["name"] == "mpi-ssh-auth")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(processes: i64) -> Source {
        let (pod, step) = ("p".to_owned(), "node-1".to_owned());
        Source { pod, step, node: Some(1), processes, mpi: false, attempt: 2 }
    }

    #[test]
    fn ranks_come_from_torchruns_marks() {
        assert_eq!(source(2).rank_of("[default1]:hello"), (Some(3), "hello"));
        assert_eq!(source(2).rank_of("hello"), (None, "hello"));
        assert_eq!(source(1).rank_of("hello"), (Some(1), "hello"));
        assert_eq!(source(2).rank_of("[1]: a list"), (None, "[1]: a list"), "only torchrun's own form counts");
        assert_eq!(source(2).rank_of("[default7]:x"), (None, "[default7]:x"), "no such local rank");
        let told = "[rank3]: Traceback (most recent call last):";
        assert_eq!(source(2).rank_of(told), (Some(3), told), "torch names the rank among all");
        assert_eq!(source(1).rank_of("[rank0]: x"), (Some(1), "[rank0]: x"), "one process: the node's rank");
    }

    #[test]
    fn ranks_of_mpi_come_from_mpiruns_marks() {
        let pod = json!({"metadata": {"name": "p", "labels": {"jobset.sigs.k8s.io/replicatedjob-name": "launcher",
            "batch.kubernetes.io/job-completion-index": "0"}}, "spec": {"volumes": [{"name": "mpi-ssh-auth"}]}});
        let launcher = Source::of(&pod, 1);
        assert_eq!(launcher.rank_of("[1,3]<stdout>:hello"), (Some(3), "hello"));
        assert_eq!(launcher.rank_of("mpirun: no"), (None, "mpirun: no"), "the launcher is no rank");
        assert!(Show { rank: Some(3), ..Show::default() }.wants_pod(&launcher));
    }

    #[test]
    fn a_rank_or_step_that_is_not_there_is_named() {
        let pod = |index: &str| {
            json!({"metadata": {"labels": {"jobset.sigs.k8s.io/replicatedjob-name": "node",
                "batch.kubernetes.io/job-completion-index": index}},
                "spec": {"containers": [{"env": [{"name": "PET_NPROC_PER_NODE", "value": "2"}]}]}})
        };
        let sources = [Source::of(&pod("0"), 1), Source::of(&pod("1"), 1)];
        let sources: Vec<&Source> = sources.iter().collect();
        let told = |show: Show| show.check("j", &sources).map_err(|error| error.to_string());
        assert_eq!(told(Show { rank: Some(3), ..Show::default() }), Ok(()));
        let error = told(Show { rank: Some(4), ..Show::default() });
        assert_eq!(error, Err("TrainJob \"j\" has no rank 4: its ranks are 0 to 3".to_owned()));
        let error = told(Show { step: Some("node-2".to_owned()), ..Show::default() });
        assert_eq!(error, Err("TrainJob \"j\" has no step \"node-2\"; its steps: node-0, node-1".to_owned()));
        assert!(Show { rank: Some(4), ..Show::default() }.check("j", &[]).is_ok(), "pods may come yet");
    }

    fn line(text: &str) -> Line {
        Line { source: Arc::new(source(2)), time: "T".to_owned(), text: text.to_owned(), folded: 0, drawn: Drawn::Once }
    }

    #[test]
    fn of_a_bar_the_last_state_is_a_line() {
        let mut bars = Bars::default();
        let mut print = |text: &str, drawn: Drawn| -> Vec<String> {
            bars.take(Line { drawn, ..line(text) }).into_iter().map(|line| line.text).collect()
        };
        let bar = |percent: u32| format!("[default0]:{percent}%|██  | 1/9 [00:01<00:03,  3.1it/s]");
        assert!(print(&bar(10), Drawn::Once).is_empty() && print(&bar(20), Drawn::Once).is_empty());
        assert_eq!(print("[default1]:other rank", Drawn::Once), ["[default1]:other rank"]);
        assert_eq!(print("[default0]:done", Drawn::Once), [bar(20).as_str(), "[default0]:done"]);
        assert!(print("[default0]:", Drawn::Once).is_empty(), "the end of the bar's line");
        assert_eq!(print("[default0]:", Drawn::Once), ["[default0]:"], "an empty line");
        assert!(print("step 1 of 9", Drawn::Still).is_empty());
        assert_eq!(print("step 9 of 9", Drawn::Again), ["step 9 of 9"], "the same line at its end");
        assert!(print(&bar(90), Drawn::Again).is_empty());
        assert_eq!(bars.states().collect::<Vec<_>>(), ["rank 2: 90%|██  | 1/9 [00:01<00:03,  3.1it/s]"]);
        assert_eq!(bars.rest().len(), 1);
    }

    #[test]
    fn a_rank_shows_its_own_lines_only() {
        let show = Show { rank: Some(3), ..Show::default() };
        assert_eq!(show.render(&line("[default1]:a"), false, "").as_deref(), Some("[rank 3] a"));
        assert_eq!(show.render(&line("[default0]:a"), false, ""), None);
        assert!(show.wants_pod(&source(2)));
        assert!(!Show { rank: Some(1), ..Show::default() }.wants_pod(&source(2)));
    }

    #[test]
    fn a_line_as_data_says_where_and_when_it_was_printed() {
        let show = Show { json: true, ..Show::default() };
        let told: Value = serde_json::from_str(&show.render(&line("[default1]:a"), true, "").unwrap()).unwrap();
        assert_eq!(told, json!({"step": "node-1", "rank": 3, "pod": "p", "attempt": 2, "time": "T", "line": "a"}));
    }

    #[test]
    fn what_is_folded_is_counted_and_never_matched() {
        let folded = Line { folded: 34, ..line("E1122 failed") };
        let show = Show::default();
        let told = show.render(&folded, false, "--all shows them");
        assert_eq!(told.as_deref(), Some("[node-1] [torchrun: 34 lines folded; --all shows them]"));
        let grep = Show { grep: Some(Regex::new("fail").unwrap()), ..Show::default() };
        assert_eq!(grep.render(&folded, false, ""), None);
        assert!(grep.render(&line("it failed"), false, "").is_some() && grep.render(&line("x"), false, "").is_none());
    }
}
