//! Reads logs: lines by rank, without messages of launchers, with each traceback as one piece.

use crate::facts::LogTail;
use jiff::Timestamp;
use std::borrow::Cow;

/// A line as rules read it.
#[derive(Clone, Debug)]
pub(crate) struct Text<'a> {
    pub time: Option<Timestamp>,
    pub text: Cow<'a, str>,
    /// Written by a launcher about its own business.
    pub noise: bool,
}

/// What one rank wrote, or what nobody marked.
#[derive(Clone, Debug)]
pub(crate) struct Unit<'a> {
    pub rank: Option<i64>,
    pub lines: Vec<Text<'a>>,
    pub tracebacks: Vec<Traceback>,
}

/// A chain of Python tracebacks: those that `During handling of the above exception` and the like connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Traceback {
    /// Lines of the whole chain.
    pub start: usize,
    pub end: usize,
    /// Lines that are an exception or its message, of all in the chain.
    pub messages: Vec<usize>,
    /// The last exception's line.
    pub exception: usize,
    /// The line `File "…", line N, in …` of the frame that is most likely the user's own.
    pub frame: Option<usize>,
}

/// A process that torchrun reports as failed first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Child {
    pub rank: Option<i64>,
    /// Below zero: a signal.
    pub exit_code: Option<i64>,
}

/// Lines by rank, ranks in the order in which they first wrote.
pub(crate) fn units(tail: &LogTail) -> Vec<Unit<'_>> {
    let mut units: Vec<Unit<'_>> = Vec::new();
    for line in &tail.lines {
        let plain = without_colours(&line.text);
        let (rank, text) = match marked(&plain) {
            Some((rank, at)) => (Some(rank), Cow::Owned(plain[at..].to_owned())),
            None => (line.rank, plain),
        };
        let noise = is_noise(&text);
        let text = Text { time: line.time, text, noise };
        match units.iter_mut().find(|unit| unit.rank == rank) {
            Some(unit) => unit.lines.push(text),
            None => units.push(Unit { rank, lines: vec![text], tracebacks: Vec::new() }),
        }
    }
    for unit in &mut units {
        unit.tracebacks = tracebacks(&mut unit.lines);
    }
    units
}

/// PyTorch marks the lines of an exception: `[rank3]: Traceback …`. The rank, and where the text begins.
fn marked(text: &str) -> Option<(i64, usize)> {
    let rest = text.strip_prefix("[rank")?;
    let (rank, after) = rest.split_once(']')?;
    let rank = rank.parse().ok()?;
    let after = after.strip_prefix(':').unwrap_or(after);
    let after = after.strip_prefix(' ').unwrap_or(after);
    Some((rank, text.len() - after.len()))
}

fn without_colours(text: &str) -> Cow<'_, str> {
    if !text.contains('\x1b') {
        return Cow::Borrowed(text);
    }
    let mut plain = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('\x1b') {
        plain += before;
        rest = match after.strip_prefix('[') {
            Some(code) => code.find(|c: char| c.is_ascii_alphabetic()).map_or("", |at| &code[at + 1..]),
            None => after,
        };
    }
    Cow::Owned(plain + rest)
}

/// Texts that only launchers and libraries write about themselves, and that never say why a job failed.
const NOISE: [&str; 22] = [
    "torch/distributed/elastic/",
    "torch/distributed/run.py",
    "torch.distributed.elastic.multiprocessing",
    "torch.distributed.run:",
    "Setting OMP_NUM_THREADS environment variable",
    "*****************************************",
    "process group has NOT been destroyed",
    "destroy_process_group() was not called",
    "resource_tracker: There appear to be",
    "FutureWarning:",
    "DeprecationWarning:",
    "UserWarning:",
    "warnings.warn(",
    "The IPv6 network addresses of",
    "The hostname of the client socket cannot be retrieved",
    "Exception ignored in",
    "KMP_AFFINITY",
    "barrier(): using the device under current context",
    "Guessing device ID based on global rank",
    "for more details. To enable traceback please see",
    "Note: to see the error from the failed process",
    "NOTE: Redirects are currently not supported",
];

fn is_noise(text: &str) -> bool {
    NOISE.iter().any(|noise| text.contains(noise))
}

const HEAD: &str = "Traceback (most recent call last):";
/// Message lines after an exception's first that are read.
const MESSAGE_MAX: usize = 24;

/// The chains of tracebacks; those of launchers become noise, with the table that follows them.
fn tracebacks(lines: &mut [Text<'_>]) -> Vec<Traceback> {
    let mut chains: Vec<Traceback> = Vec::new();
    let mut at = 0;
    let mut connected = false;
    while at < lines.len() {
        let text = lines[at].text.trim_end();
        let is_head = text.trim_start().ends_with(HEAD);
        // a script that cannot be read has no head: its file and line come first
        let is_bare = !is_head && text.starts_with("  File \"") && text.contains(", line ") && !text.contains(", in ");
        if !(is_head || is_bare) {
            let connects = text.starts_with("During handling of the above exception")
                || text.starts_with("The above exception was the direct cause");
            connected = connects || (connected && text.is_empty());
            at += 1;
            continue;
        }
        let start = at;
        let Some(chain) = traceback(lines, start, is_head) else {
            at += 1;
            continue;
        };
        at = chain.end;
        let exception = lines[chain.exception].text.trim_end();
        if exception.contains("ChildFailedError") || exception.contains("SignalException") {
            let table =
                lines[chain.start..].iter().rposition(|line| line.text.starts_with("=====")).map(|n| chain.start + n);
            let end = table.map_or(chain.end, |end| (end + 1).max(chain.end));
            lines[chain.start..end].iter_mut().for_each(|line| line.noise = true);
            at = end;
        } else {
            match chains.last_mut().filter(|_| connected) {
                Some(last) => {
                    last.end = chain.end;
                    last.messages.extend(chain.messages);
                    last.exception = chain.exception;
                    last.frame = chain.frame.or(last.frame);
                }
                None => chains.push(chain),
            }
        }
        connected = false;
    }
    chains
}

/// The last lines in the order in which they were written, launchers' own left out.
pub(crate) fn last(tail: &LogTail, rank: Option<i64>, most: usize) -> Vec<String> {
    let units = units(tail);
    // units keep the order of lines of one rank: count on from there
    let mut next: Vec<usize> = vec![0; units.len()];
    let mut kept = Vec::new();
    // where the ranks of a node can be told apart, one's lines are not mixed with another's
    let only = rank.filter(|rank| units.iter().any(|unit| unit.rank == Some(*rank)));
    for line in &tail.lines {
        let plain = without_colours(&line.text);
        let of = marked(&plain).map_or(line.rank, |(rank, _)| Some(rank));
        let Some(at) = units.iter().position(|unit| unit.rank == of) else { continue };
        let Some(text) = units[at].lines.get(next[at]) else { continue };
        next[at] += 1;
        if !text.noise && !text.text.trim().is_empty() && (only.is_none() || of == only) {
            kept.push(text.text.trim_end().to_owned());
        }
    }
    kept.split_off(kept.len().saturating_sub(most))
}

fn traceback(lines: &[Text<'_>], start: usize, has_head: bool) -> Option<Traceback> {
    let mut at = if has_head { start + 1 } else { start };
    let mut frames = Vec::new();
    while at < lines.len() {
        let text = lines[at].text.trim_end();
        if !text.is_empty() && !text.starts_with(' ') && !text.starts_with('\t') {
            break;
        }
        if text.trim_start().starts_with("File \"") {
            frames.push(at);
        }
        at += 1;
    }
    let exception = at;
    let text = lines.get(exception)?.text.trim_end();
    if !has_head && !["SyntaxError", "IndentationError", "TabError"].iter().any(|kind| text.starts_with(kind)) {
        return None;
    }
    let mut messages = vec![exception];
    at += 1;
    while at < lines.len() && messages.len() < MESSAGE_MAX {
        let text = lines[at].text.trim_end();
        let other = text.ends_with(HEAD)
            || text.starts_with("During handling of")
            || text.starts_with("The above exception was")
            || text.starts_with("  File \"");
        if other || lines[at].noise {
            break;
        }
        messages.push(at);
        at += 1;
    }
    let own = frames.iter().rev().find(|at| is_own(&lines[**at].text)).or(frames.last());
    Some(Traceback { start, end: at, frame: own.copied(), exception, messages })
}

/// Whether a frame is of the user's code, as far as its path tells.
fn is_own(frame: &str) -> bool {
    let foreign =
        ["site-packages", "dist-packages", "/lib/python3", "<frozen", "<string>", "/torch/", "/lib64/python3"];
    !foreign.iter().any(|part| frame.contains(part))
}

/// What torchrun's table says of the process that failed first.
pub(crate) fn first_child(tail: &LogTail) -> Option<Child> {
    let mut child = None;
    for line in &tail.lines {
        let text = line.text.trim();
        if text.contains("Root Cause (first observed failure)") {
            child = Some(Child::default());
        }
        let Some(child) = &mut child else { continue };
        let Some((key, value)) = text.split_once(':') else { continue };
        let number = || value.split_whitespace().next().and_then(|number| number.parse().ok());
        match key.trim() {
            "rank" if child.rank.is_none() => child.rank = number(),
            "exitcode" if child.exit_code.is_none() => child.exit_code = number(),
            _ => {}
        }
    }
    // without the table: `failed (exitcode: -9) local_rank: 1 (pid: 12) of binary: …`
    child.filter(|child| child.exit_code.is_some()).or_else(|| {
        let found = tail
            .lines
            .iter()
            .find_map(|line| crate::pattern::captures("failed (exitcode: {code}) local_rank: {_}", &line.text))?;
        let code = found.into_iter().find(|(name, _)| *name == "code")?.1.parse().ok()?;
        Some(Child { rank: None, exit_code: Some(code) })
    })
}

/// File, line and function of a frame: `File "/a/b.py", line 5, in main`.
pub(crate) fn place(frame: &str) -> Option<(String, String)> {
    let rest = frame.trim().strip_prefix("File \"")?;
    let (file, rest) = rest.split_once("\", line ")?;
    let line: String = rest.chars().take_while(char::is_ascii_digit).collect();
    Some((file.to_owned(), line))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::Line;

    fn tail(text: &str) -> LogTail {
        let line = |text: &str| Line { text: text.to_owned(), ..Line::default() };
        LogTail { lines: text.lines().map(line).collect(), ..LogTail::default() }
    }

    const TORCHRUN: &str = r#"[rank1]: Traceback (most recent call last):
[rank1]:   File "/w/bad.py", line 5, in main
[rank1]:     step()
[rank1]:   File "/v/lib/python3.11/site-packages/torch/nn/modules/module.py", line 1, in _call
[rank1]: ValueError: boom
E1122 10:00:00.1 12 torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: 1) local_rank: 1 (pid: 13) of binary: /usr/bin/python3
Traceback (most recent call last):
  File "/v/bin/torchrun", line 8, in <module>
    sys.exit(main())
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
bad.py FAILED
------------------------------------------------------------
Failures:
  <NO_OTHER_FAILURES>
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-22_10:00:00
  host      : node-0
  rank      : 1 (local_rank: 1)
  exitcode  : -9 (pid: 13)
  error_file: <N/A>
  traceback : Signal 9 (SIGKILL) received by PID 13
============================================================"#;

    #[test]
    fn torchruns_own_lines_are_noise() {
        let tail = tail(TORCHRUN);
        let units = units(&tail);
        assert_eq!(units.iter().map(|unit| unit.rank).collect::<Vec<_>>(), [Some(1), None]);
        assert!(units[1].lines.iter().all(|line| line.noise), "{:?}", units[1]);
        let worker = &units[0];
        assert_eq!(worker.tracebacks.len(), 1);
        assert_eq!(worker.lines[worker.tracebacks[0].exception].text, "ValueError: boom");
        let frame = worker.tracebacks[0].frame.expect("a frame");
        assert_eq!(place(&worker.lines[frame].text), Some(("/w/bad.py".to_owned(), "5".to_owned())), "not torch's");
        assert_eq!(first_child(&tail), Some(Child { rank: Some(1), exit_code: Some(-9) }));
    }

    #[test]
    fn chains_are_one_piece() {
        let text = "Traceback (most recent call last):\n  File \"a.py\", line 1, in f\nKeyError: 'x'\n\nThe above exception was the \
                    direct cause of the following exception:\n\nTraceback (most recent call last):\n  File \"a.py\", line 2, in g\n\
                    RuntimeError: no x\nand more of it";
        let tail = tail(text);
        let units = units(&tail);
        let [chain] = &units[0].tracebacks[..] else { panic!("{units:?}") };
        assert_eq!(units[0].lines[chain.exception].text, "RuntimeError: no x");
        let messages: Vec<&str> = chain.messages.iter().map(|at| units[0].lines[*at].text.as_ref()).collect();
        assert_eq!(messages, ["KeyError: 'x'", "", "RuntimeError: no x", "and more of it"]);
    }

    #[test]
    fn a_script_that_cannot_be_read_has_no_head() {
        let tail = tail("  File \"/w/bad.py\", line 3\n    def f(\n         ^\nSyntaxError: '(' was never closed");
        let units = units(&tail);
        assert_eq!(units[0].tracebacks[0].exception, 3);
    }

    #[test]
    fn colours_are_left_out() {
        assert_eq!(without_colours("\x1b[31mred\x1b[0m."), "red.");
        assert_eq!(without_colours("\x1b["), "");
    }
}
