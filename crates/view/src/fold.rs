//! Folds torchrun's own messages, so that the output of the training code stands out: the banner about OMP_NUM_THREADS, messages of
//! torchrun's agent, the traceback and the table of a ChildFailedError. A line that is not certainly torchrun's is never folded.

/// A line that the caller wants back, and its text.
pub trait Text {
    fn text(&self) -> &str;
}

/// What comes out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Folded<T> {
    Line(T),
    /// So many lines of torchrun's; the first of them.
    Lines(usize, T),
}

/// Folds one log.
#[derive(Debug)]
pub struct Fold<T> {
    within: Within,
    /// Lines of a traceback whose end will tell whose it is.
    held: Vec<T>,
    /// Folded since the last line that was shown.
    folded: usize,
    first: Option<T>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Within {
    Nothing,
    /// A traceback that may be torchrun's: nothing but its head and the interpreter's own frames so far.
    Head,
    /// A traceback that begins in torchrun.
    Traceback,
    /// The table of a ChildFailedError, and whether its last part has begun.
    Table {
        root_cause: bool,
    },
}

/// Modules that only torchrun logs from. Its rendezvous is not among them: its user wants to know that a rank waits for a peer.
const MODULES: [&str; 4] = [
    "torch/distributed/run.py:",
    "torch/distributed/elastic/multiprocessing/",
    "torch/distributed/elastic/agent/",
    "torch/distributed/launcher/",
];
const LOGGERS: [&str; 4] = [
    "torch.distributed.run:",
    "torch.distributed.elastic.multiprocessing",
    "torch.distributed.elastic.agent",
    "torch.distributed.launcher",
];
const ERRORS: [&str; 2] = [
    "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:",
    "torch.distributed.elastic.multiprocessing.api.SignalException:",
];

impl<T> Default for Fold<T> {
    fn default() -> Self {
        Self { within: Within::Nothing, held: Vec::new(), folded: 0, first: None }
    }
}

impl<T: Text> Fold<T> {
    /// The next line; what can be shown now.
    pub fn push(&mut self, line: T) -> Vec<Folded<T>> {
        let mut out = Vec::new();
        self.take(line, &mut out);
        out
    }

    /// There are no more lines.
    pub fn finish(&mut self) -> Vec<Folded<T>> {
        let mut out = Vec::new();
        self.let_go(&mut out);
        self.show_folded(&mut out);
        self.within = Within::Nothing;
        out
    }

    fn take(&mut self, line: T, out: &mut Vec<Folded<T>>) {
        let text = line.text();
        match self.within {
            Within::Nothing if text == "Traceback (most recent call last):" => {
                self.within = Within::Head;
                self.held.push(line);
            }
            Within::Nothing if is_message(text) => self.fold(line),
            Within::Nothing => {
                self.show_folded(out);
                out.push(Folded::Line(line));
            }
            Within::Head if is_frame_of(text, &["<frozen runpy>", "/runpy.py\""]) || is_source(text) => {
                self.held.push(line);
            }
            Within::Head
                if is_frame_of(
                    text,
                    &["/torchrun\"", "/torch/distributed/run.py\"", "/torch/distributed/launch.py\""],
                ) =>
            {
                self.within = Within::Traceback;
                self.held.push(line);
            }
            Within::Traceback if text.starts_with("  ") => self.held.push(line),
            Within::Traceback if text.starts_with(ERRORS[0]) => {
                self.fold_held();
                self.fold(line);
                self.within = Within::Table { root_cause: false };
            }
            Within::Traceback if text.starts_with(ERRORS[1]) => {
                self.fold_held();
                self.fold(line);
                self.within = Within::Nothing;
            }
            Within::Head | Within::Traceback => {
                self.let_go(out);
                self.within = Within::Nothing;
                self.take(line, out);
            }
            Within::Table { root_cause } => {
                let is_rule = is_rule(text, '=');
                if !is_rule && !is_row(text) {
                    self.within = Within::Nothing;
                    return self.take(line, out);
                }
                if is_rule && root_cause {
                    self.within = Within::Nothing;
                } else if text.starts_with("Root Cause (") {
                    self.within = Within::Table { root_cause: true };
                }
                self.fold(line);
            }
        }
    }

    fn fold(&mut self, line: T) {
        self.folded += 1;
        self.first.get_or_insert(line);
    }

    fn fold_held(&mut self) {
        std::mem::take(&mut self.held).into_iter().for_each(|line| self.fold(line));
    }

    /// What was held turns out to be somebody else's.
    fn let_go(&mut self, out: &mut Vec<Folded<T>>) {
        if !self.held.is_empty() {
            self.show_folded(out);
            out.extend(self.held.drain(..).map(Folded::Line));
        }
    }

    fn show_folded(&mut self, out: &mut Vec<Folded<T>>) {
        if let Some(first) = self.first.take() {
            out.push(Folded::Lines(std::mem::take(&mut self.folded), first));
        }
    }
}

/// A message of torchrun's logger: `W1122 10:18:23.457000 26857 torch/distributed/run.py:982] …`, and the forms of older
/// versions.
fn is_message(text: &str) -> bool {
    let mut bytes = text.bytes();
    match bytes.next() {
        Some(b'I' | b'W' | b'E') if bytes.next().is_some_and(|b| b.is_ascii_digit()) => {
            let Some((head, _)) = text.split_once(']') else { return false };
            let place = head.rsplit(' ').next().unwrap_or_default();
            MODULES.iter().any(|module| place.contains(module))
        }
        Some(b'W' | b'E' | b'I') => {
            let rest = ["WARNING:", "ERROR:", "INFO:"].iter().find_map(|level| text.strip_prefix(level));
            rest.is_some_and(|rest| LOGGERS.iter().any(|logger| rest.starts_with(logger)))
        }
        Some(b'[') => {
            let rest = text.split_once("] ").map_or("", |(_, rest)| rest);
            LOGGERS.iter().any(|logger| rest.starts_with(logger))
                && ["[WARNING]", "[ERROR]", "[INFO]"].iter().any(|level| rest.contains(level))
        }
        Some(b'S') => text.starts_with("Setting OMP_NUM_THREADS environment variable for each process to be "),
        Some(b'*') => text.len() == 41 && is_rule(text, '*'),
        _ => false,
    }
}

fn is_rule(text: &str, of: char) -> bool {
    text.len() >= 9 && text.chars().all(|c| c == of)
}

/// `  File ".../torchrun", line 8, in <module>`
fn is_frame_of(text: &str, files: &[&str]) -> bool {
    text.starts_with("  File \"") && files.iter().any(|file| text.contains(file))
}

/// A line of source under a frame.
fn is_source(text: &str) -> bool {
    text.starts_with("    ")
}

/// A line of the table. A traceback of the training code in it is none.
fn is_row(text: &str) -> bool {
    let is_index = || text.strip_prefix('[').and_then(|rest| rest.strip_suffix("]:"));
    match text.strip_prefix("  ") {
        Some("<NO_OTHER_FAILURES>") => true,
        Some(row) => match row.split_once(": ") {
            Some(("traceback ", why)) => why.starts_with("To enable traceback see") || why.starts_with("Signal "),
            Some((name, _)) => ["time      ", "host      ", "rank      ", "exitcode  ", "error_file"].contains(&name),
            None => false,
        },
        None => {
            text.is_empty()
                || text == "Failures:"
                || text == "Root Cause (first observed failure):"
                || text.ends_with(" FAILED")
                || is_rule(text, '-')
                || is_index().is_some_and(|index| index.parse::<u32>().is_ok())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Text for &str {
        fn text(&self) -> &str {
            self
        }
    }

    /// What is shown, a fold as its count.
    fn shown(log: &str) -> Vec<String> {
        let mut fold = Fold::default();
        let mut out: Vec<Folded<&str>> = log.lines().flat_map(|line| fold.push(line)).collect();
        out.extend(fold.finish());
        out.into_iter()
            .map(|folded| match folded {
                Folded::Line(line) => line.to_owned(),
                Folded::Lines(count, _) => format!("({count})"),
            })
            .collect()
    }

    const FAILED: &str = include_str!("../testdata/torchrun-failed.txt");

    #[test]
    fn a_failure_of_torchrun_leaves_the_training_codes_own_lines() {
        let own = [
            "hello from 0",
            "hello from 1",
            "Traceback (most recent call last):",
            "  File \"/home/me/train.py\", line 3, in <module>",
            "    if os.environ[\"RANK\"]==\"1\": raise ValueError(\"no such thing\")",
            "                                ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^",
            "ValueError: no such thing",
        ];
        let expected: Vec<String> = [&["(4)"][..], &own, &["(40)"]].concat().into_iter().map(str::to_owned).collect();
        assert_eq!(shown(FAILED), expected);
        assert_eq!(FAILED.lines().count(), 4 + own.len() + 40);
    }

    #[test]
    fn older_torchruns_say_the_same_otherwise() {
        let log = "WARNING:torch.distributed.run:\n*****************************************\n\
            Setting OMP_NUM_THREADS environment variable for each process to be 1 in default, to avoid\n\
            *****************************************\n\
            [2024-01-02 03:04:05,678] torch.distributed.elastic.multiprocessing.api: [ERROR] failed (exitcode: 1)\nx";
        assert_eq!(shown(log), ["(5)", "x"]);
    }

    #[test]
    fn what_may_be_the_codes_own_stays() {
        for log in [
            "Traceback (most recent call last):\n  File \"/usr/lib/torchrun\", line 8, in <module>\nKeyError: 'x'",
            "Traceback (most recent call last):\n  File \"train.py\", line 8, in <module>\nKeyError: 'x'",
            "Traceback (most recent call last):",
            "Traceback (most recent call last):\n  File \"<frozen runpy>\", line 1\n    x\n  File \"a.py\", line 1",
            "============================================================\nmy model FAILED\n-------------------------",
            "W1122 10:18:23.457000 26857 torch/distributed/elastic/rendezvous/dynamic.py:1] waiting",
            "W1122 10:18:23.457000 26857 torch/distributed/distributed_c10d.py:1] NCCL timed out",
            "Epoch 1",
            "",
            "[rank0]: x",
            "***",
            "Warning: x",
            "[default0]:Traceback (most recent call last):",
        ] {
            assert_eq!(shown(log), log.lines().collect::<Vec<_>>(), "{log}");
        }
        // a table that carries the code's traceback (by @record) shows that
        let start = FAILED.find("  traceback : To").unwrap();
        let recorded =
            format!("{}  traceback : Traceback (most recent call last):\n    File \"x.py\"", &FAILED[..start]);
        let shown = shown(&recorded);
        assert_eq!(
            &shown[shown.len() - 2..],
            ["  traceback : Traceback (most recent call last):", "    File \"x.py\""]
        );
    }
}
