//! Judges the log of one container run: the sign or exception that ended it, and the line where it stands.

use crate::facts::LogTail;
use crate::lines::{Child, Text, Traceback, Unit, first_child, place, units};
use crate::pattern::{Vars, captures};
use crate::reason::Reason;
use crate::signs::{self, Class, Found};
use jiff::Timestamp;

/// Lines at the end of a log that are read for signs where no traceback ends it.
const LAST_LINES: usize = 60;
/// What Open MPI names in lines of its own, after it has said what is wrong with it.
const NAMED_AFTER: [&str; 3] = ["^Executable: {command}", "^Working directory: {path}", "^Node: {_}"];
/// Within how many lines.
const NAMED_WITHIN: usize = 12;
/// As many dashes are a row, above and below what Open MPI says.
const ROW_MIN: usize = 20;
/// Exceptions that only say that something else failed, which wrote its own lines before.
const HOLLOW: [&str; 5] = [
    "SystemExit",
    "CalledProcessError",
    "ProcessExitedException",
    "ProcessRaisedException",
    "torch.multiprocessing.spawn",
];

/// What a log says of its end.
#[derive(Clone, Debug)]
pub(crate) struct Verdict {
    pub reason: Reason,
    pub class: Class,
    pub rank: Option<i64>,
    /// Lines to quote.
    pub quotes: Vec<String>,
    /// When the telling line was written.
    pub time: Option<Timestamp>,
    pub vars: Vars,
    /// What torchrun says of the process that failed first.
    pub child: Option<Child>,
    /// Lines to the end of the log, launchers' own left out.
    pub from_end: usize,
}

/// Reads a log's end; `None` where nothing in it says why.
pub(crate) fn of(tail: &LogTail) -> Option<Verdict> {
    let child = first_child(tail);
    let units = units(tail);
    let mut verdicts: Vec<Verdict> = units.iter().filter_map(|unit| of_unit(unit, child.as_ref())).collect();
    let first_rank = child.as_ref().and_then(|child| child.rank);
    // the first among those of the same class: the process that torchrun names, then the first to write it
    verdicts.sort_by_key(|verdict| (verdict.class, verdict.rank != first_rank || first_rank.is_none(), verdict.time));
    let mut first = verdicts.into_iter().next()?;
    first.rank = first.rank.or(first_rank);
    Some(first)
}

fn of_unit(unit: &Unit<'_>, child: Option<&Child>) -> Option<Verdict> {
    let by_traceback = unit.tracebacks.iter().rev().map(|chain| of_traceback(unit, chain));
    // of several the last; but one that only tells of another process's end gives way to one of its own
    let by_traceback = by_traceback.min_by_key(|verdict| verdict.class);
    let verdict = match by_traceback {
        // the assertion of a kernel is written before, and whatever CUDA is asked next fails
        Some(verdict) if verdict.reason == Reason::CudaError => {
            by_signs(unit).filter(|sign| sign.reason == Reason::CudaAssertion).or(Some(verdict))
        }
        Some(verdict) if verdict.reason != Reason::Exception || !is_hollow(&verdict) => Some(verdict),
        hollow => by_signs(unit).or(hollow),
    };
    verdict.map(|verdict| Verdict { child: child.cloned(), ..verdict })
}

fn is_hollow(verdict: &Verdict) -> bool {
    let exception = verdict.vars.get("exception").map_or("", String::as_str);
    HOLLOW.iter().any(|hollow| exception.contains(hollow))
}

fn of_traceback(unit: &Unit<'_>, chain: &Traceback) -> Verdict {
    let text = |at: usize| unit.lines[at].text.trim_end();
    let mut best: Option<(usize, Found)> = None;
    for at in &chain.messages {
        if let Some(found) = signs::in_line(text(*at))
            .filter(|found| found.sign.reason != Reason::MissingVariable || of_environment(unit, chain))
            && best.as_ref().is_none_or(|(_, best)| best.sign.weight <= found.sign.weight)
        {
            best = Some((*at, found));
        }
    }
    let mut vars = Vars::new();
    let exception = text(chain.exception);
    match captures("^{exception}: {message}", exception) {
        Some(held) if held.iter().all(|(name, text)| *name != "exception" || !text.contains(' ')) => vars.extend(held),
        _ => _ = vars.insert("exception", exception.trim_end_matches(':').to_owned()),
    }
    // a message that begins on the next line
    if !vars.contains_key("message")
        && let Some(next) = chain.messages.iter().find(|at| **at > chain.exception && !text(**at).trim().is_empty())
    {
        vars.insert("message", text(*next).trim().to_owned());
    }
    let mut quotes = Vec::new();
    if let Some(frame) = chain.frame {
        if let Some((file, line)) = place(text(frame)) {
            let name = file.rsplit('/').next().unwrap_or(&file).to_owned();
            vars.insert("place", format!("{name}:{line}"));
            vars.insert("file", file);
            vars.insert("line", line);
        }
        quotes.push(text(frame).trim().to_owned());
    }
    quotes.push(exception.to_owned());
    let (reason, class) = match best {
        Some((at, found)) => {
            if at != chain.exception {
                quotes.push(text(at).trim().to_owned());
            }
            vars.extend(found.captures);
            (of_command(unit, chain, found.sign.reason, &mut vars), found.sign.class)
        }
        None => (Reason::Exception, Class::Own),
    };
    let from_end = quiet(&unit.lines[chain.end..]).count();
    Verdict {
        reason,
        class,
        rank: unit.rank,
        quotes,
        time: unit.lines[chain.exception].time,
        vars,
        child: None,
        from_end,
    }
}

/// A file that is missing or may not be run is a command's, where the traceback goes through `subprocess`.
fn of_command(unit: &Unit<'_>, chain: &Traceback, reason: Reason, vars: &mut Vars) -> Reason {
    let starts = |line: &Text<'_>| line.text.contains("/subprocess.py\"") && line.text.contains("in _execute_child");
    let of_command = match reason {
        Reason::MissingFile => Reason::CommandNotFound,
        Reason::PermissionDenied => Reason::NotExecutable,
        _ => return reason,
    };
    match vars.get("path").cloned() {
        Some(path) if unit.lines[chain.start..chain.exception].iter().any(starts) => {
            vars.insert("command", path);
            of_command
        }
        _ => reason,
    }
}

/// Whether a traceback goes through `os.environ`: a KeyError of it is a variable's.
fn of_environment(unit: &Unit<'_>, chain: &Traceback) -> bool {
    let signs = ["os.environ", "<frozen os>", "/os.py\""];
    unit.lines[chain.start..chain.exception].iter().any(|line| signs.iter().any(|sign| line.text.contains(sign)))
}

/// The lines that are no launcher's and say something: Open MPI frames what it says in rows of dashes.
fn quiet<'a, 'b>(lines: &'a [Text<'b>]) -> impl DoubleEndedIterator<Item = &'a Text<'b>> {
    lines.iter().filter(|line| !line.noise && line.text.trim().chars().any(|c| !"-=*#".contains(c)))
}

/// The sign in the last lines that says most; of equal ones the first.
fn by_signs(unit: &Unit<'_>) -> Option<Verdict> {
    let mut best: Option<(usize, &Text<'_>, Found)> = None;
    for (from_end, line) in quiet(&unit.lines).rev().take(LAST_LINES).enumerate() {
        let Some(found) = signs::in_line(line.text.trim_end()) else { continue };
        let is_better = |best: &Found| found.sign.weight >= best.sign.weight;
        if best.as_ref().is_none_or(|(_, _, best)| is_better(best)) {
            best = Some((from_end, line, found));
        }
    }
    let (from_end, line, found) = best?;
    let mut vars = Vars::new();
    vars.insert("message", line.text.trim().to_owned());
    let mut quotes = vec![framed_sentence(unit, line).unwrap_or_else(|| line.text.trim().to_owned())];
    if found.captures.is_empty() {
        for (named, values) in named_after(found.sign.reason, unit, from_end) {
            quotes.push(named);
            vars.extend(values);
        }
    }
    vars.extend(found.captures);
    Some(Verdict {
        reason: found.sign.reason,
        class: found.sign.class,
        rank: unit.rank,
        quotes,
        time: line.time,
        vars,
        child: None,
        from_end,
    })
}

/// The sentence that a line is of, where Open MPI has said it: it breaks its sentences into lines, below a row of dashes.
fn framed_sentence(unit: &Unit<'_>, line: &Text<'_>) -> Option<String> {
    let text = |at: usize| unit.lines[at].text.trim();
    let is_row = |at: usize| text(at).len() >= ROW_MIN && text(at).bytes().all(|byte| byte == b'-');
    let at = unit.lines.iter().position(|other| std::ptr::eq(other, line))?;
    let row = (at.saturating_sub(NAMED_WITHIN)..at).rev().find(|at| is_row(*at))?;
    let start = (row + 1..at).rev().find(|at| text(*at).is_empty()).unwrap_or(row) + 1;
    let ends = |at: &usize| text(*at).is_empty() || is_row(*at);
    let end = (at..unit.lines.len()).find(ends).unwrap_or(unit.lines.len());
    let words = |lines: std::ops::Range<usize>| -> Vec<&str> { lines.flat_map(|at| text(at).split(' ')).collect() };
    let before = words(start..at);
    let begin = before.iter().rposition(|word| word.ends_with('.')).map_or(0, |last| last + 1);
    let mut sentence = before[begin..].to_vec();
    for word in words(at..end) {
        sentence.push(word);
        if word.ends_with('.') {
            break;
        }
    }
    sentence.retain(|word| !word.is_empty());
    Some(sentence.join(" "))
}

/// The lines that name a program or folder and where it is looked for, and what they name, after a sign that is so far from the end.
fn named_after(reason: Reason, unit: &Unit<'_>, from_end: usize) -> Vec<(String, Vec<(&'static str, String)>)> {
    if !matches!(reason, Reason::CommandNotFound | Reason::NotExecutable | Reason::MissingFile) {
        return Vec::new();
    }
    let after: Vec<&str> = quiet(&unit.lines).rev().take(from_end).map(|line| line.text.trim()).collect();
    let named = |pattern: &&'static str| {
        let mut lines = after.iter().rev().take(NAMED_WITHIN);
        lines.find_map(|line| Some(((*line).to_owned(), captures(pattern, line)?)))
    };
    NAMED_AFTER.iter().filter_map(named).collect()
}

/// The last line that is no launcher's.
pub(crate) fn last_line(tail: &LogTail) -> Option<String> {
    let units = units(tail);
    let unit = units.iter().max_by_key(|unit| quiet(&unit.lines).next_back().and_then(|line| line.time))?;
    Some(quiet(&unit.lines).next_back()?.text.trim().to_owned())
}
