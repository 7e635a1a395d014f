//! Metrics that training code prints: which ones are asked for, and their values in a line of output.
//!
//! A pattern is a name (`loss`), which means the number after `loss=`, `loss: ` or `"loss": `; or a regular expression with a group
//! for the number. A named group (`(?<loss>…)`) names the metric; of an expression with one group without a name, it is the
//! word before the group (`loss=([0-9.]+)`).

use regex::{Regex, RegexBuilder};
use std::sync::LazyLock;

/// How many patterns a job may have, and how many characters each.
const PATTERNS_MAX: usize = 32;
const LENGTH_MAX: usize = 1000;
/// Bytes that the compiled expression may take.
const SIZE_MAX: usize = 1 << 20;
/// Characters of the name and of the value of a metric, by the schema of a TrainJob's status.
const NAME_MAX: usize = 64;
/// A number as programs print it.
const NUMBER: &str = r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?|[-+]?(?i:nan|inf(?:inity)?)\b";

/// The patterns of one job, in their order.
#[derive(Clone, Debug, Default)]
pub struct Patterns(Vec<Pattern>);

#[derive(Clone, Debug)]
struct Pattern {
    expression: Regex,
    /// Each group that is a metric: its number, and the metric's name.
    groups: Vec<(usize, String)>,
}

impl Patterns {
    /// Reads the value of the annotation `trainyard.dev/metrics`: a pattern on each line.
    ///
    /// Errors: what is wrong with the first line that is no pattern.
    pub fn parse(text: &str) -> Result<Self, String> {
        let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        if lines.is_empty() || lines.len() > PATTERNS_MAX {
            return Err(format!("must have 1 to {PATTERNS_MAX} patterns, one on each line"));
        }
        lines.into_iter().map(Pattern::parse).collect::<Result<_, _>>().map(Self)
    }

    /// Those of metrics that are known by their names alone. What cannot be a metric's name is left out.
    pub fn of_names<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        Self(names.into_iter().filter(|name| is_name(name)).filter_map(|name| Pattern::of_name(name).ok()).collect())
    }

    /// These, and those of the others whose metrics are not among these.
    #[must_use]
    pub fn and(mut self, others: Self) -> Self {
        let has = |name: &String| self.0.iter().flat_map(|pattern| &pattern.groups).any(|(_, known)| known == name);
        let news: Vec<Pattern> =
            others.0.into_iter().filter(|pattern| !pattern.groups.iter().all(|(_, name)| has(name))).collect();
        self.0.extend(news);
        self
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The names of the metrics.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().flat_map(|pattern| pattern.groups.iter().map(|(_, name)| name.as_str()))
    }

    /// The metrics in a line of output, and their values as they are printed. What a group matches that is no number counts for nothing.
    /// Where an expression matches several times, as in a progress bar that was redrawn, the last one counts.
    pub fn read<'a>(&'a self, line: &'a str) -> Vec<(&'a str, &'a str)> {
        let mut found = Vec::new();
        for pattern in &self.0 {
            let Some(captures) = pattern.expression.captures_iter(line).last() else { continue };
            for (group, name) in &pattern.groups {
                let value = captures.get(*group).map(|value| value.as_str().trim()).unwrap_or_default();
                if value.len() <= NAME_MAX && value.parse::<f64>().is_ok() {
                    found.push((name.as_str(), value));
                }
            }
        }
        found
    }
}

impl Pattern {
    fn parse(text: &str) -> Result<Self, String> {
        if text.chars().count() > LENGTH_MAX {
            return Err(format!("{:.40}… is longer than {LENGTH_MAX} characters", text));
        }
        if is_name(text) {
            return Self::of_name(text);
        }
        let expression = compile(text)?;
        let named: Vec<(usize, String)> = expression
            .capture_names()
            .enumerate()
            .filter_map(|(group, name)| Some((group, name?.to_owned())))
            .collect();
        let groups = match (named.is_empty(), expression.captures_len()) {
            (false, _) => named,
            (true, 2) => {
                let name = name_before_group(text).ok_or_else(|| {
                    format!(
                        "{text}: the metric has no name; put a word before the group, as in loss=([0-9.]+), or name the group: (?<loss>[0-9.]+)"
                    )
                })?;
                vec![(1, name)]
            }
            (true, 1) => {
                return Err(format!("{text}: a group for the number is missing, such as loss=([0-9.]+)"));
            }
            (true, _) => {
                return Err(format!(
                    "{text} has several groups and none has a name; name each group that is a metric: (?<loss>[0-9.]+)"
                ));
            }
        };
        match groups.iter().find(|(_, name)| name.len() > NAME_MAX) {
            Some((_, name)) => Err(format!("{name}: the name of a metric has at most {NAME_MAX} characters")),
            None => Ok(Self { expression, groups }),
        }
    }

    fn of_name(name: &str) -> Result<Self, String> {
        // not the end of another name, such as eval_loss
        let text = format!(r#"(?:^|[^\w./-]){}["']?\s*[=:]\s*["']?({NUMBER})"#, regex::escape(name));
        Ok(Self { expression: compile(&text)?, groups: vec![(1, name.to_owned())] })
    }
}

/// Whether a text is a metric's name and no expression. A dot is taken as one of a name.
fn is_name(text: &str) -> bool {
    let is_word = |c: char| c.is_alphanumeric() || "_-./@%".contains(c);
    !text.is_empty() && text.chars().count() <= NAME_MAX && text.chars().all(is_word)
}

fn compile(text: &str) -> Result<Regex, String> {
    RegexBuilder::new(text).size_limit(SIZE_MAX).build().map_err(|error| match error {
        regex::Error::CompiledTooBig(_) => format!("{text}: the expression is too large"),
        // the last line says what is wrong; those before point to it
        error => {
            let why = error.to_string();
            let why = why.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned();
            format!("{text} is no regular expression: {why}")
        }
    })
}

/// `loss` of `train_loss[=: ]\s*([0-9.]+)`: the last word before the first group that captures, behind what may separate both.
fn name_before_group(text: &str) -> Option<String> {
    static SEPARATOR: LazyLock<Regex> = LazyLock::new(|| {
        // signs, blanks, quotes, classes of them, and how often they come
        Regex::new(r#"(?:\\[sb=:"']|\[[^\]\w]*(?:\\s)?[^\]\w]*\]|[=:\s"'*+?<>|,;~])*$"#)
            .expect("invariant: the expression is valid")
    });
    let group = capturing_group(text)?;
    let before = SEPARATOR.replace(&text[..group], "");
    let end = before.rfind(|c: char| !(c.is_alphanumeric() || "_-/.".contains(c)));
    let word = match end {
        // the letter of an escape such as \b is none of the name
        Some(at) if before[at..].starts_with('\\') => before.get(at + 2..)?,
        Some(at) => before.get(at + before[at..].chars().next()?.len_utf8()..)?,
        None => &before,
    };
    let word = word.trim_matches(['.', '-', '/']);
    (!word.is_empty()).then(|| word.to_owned())
}

/// Where the first group begins that captures and has no name.
fn capturing_group(text: &str) -> Option<usize> {
    let (mut escaped, mut class) = (false, false);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'[' => class = true,
            b']' => class = false,
            b'(' if !class && !text[at..].starts_with("(?") => return Some(at),
            _ => {}
        }
    }
    None
}

/// A line without the sequences that colour it in a terminal.
pub fn plain(line: &str) -> std::borrow::Cow<'_, str> {
    static SEQUENCE: LazyLock<Regex> =
        LazyLock::new(|| Regex::new("\x1b\\[[0-9;?]*[ -/]*[@-~]").expect("invariant: the expression is valid"));
    SEQUENCE.replace_all(line, " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read<'a>(patterns: &'a Patterns, line: &'a str) -> Vec<(&'a str, &'a str)> {
        patterns.read(line)
    }

    #[test]
    fn a_name_finds_its_number_as_programs_print_it() {
        let loss = Patterns::parse("loss").unwrap();
        for (line, value) in [
            ("loss=0.25", "0.25"),
            ("step 3: loss = 1e-3, accuracy=0.9", "1e-3"),
            ("epoch 1  loss: 12", "12"),
            ("{'loss': 0.5, 'learning_rate': 5e-05}", "0.5"),
            (r#"{"loss":"0.75"}"#, "0.75"),
            ("100%|##########| 10/10 [00:01<00:00, 9.9it/s, loss=.5]", ".5"),
            ("loss=-1.5e+02.", "-1.5e+02"),
            ("loss=nan", "nan"),
            ("loss: -inf (stopped)", "-inf"),
            ("loss=9 loss=8", "8"),
        ] {
            assert_eq!(read(&loss, line), [("loss", value)], "{line}");
        }
        for line in
            ["eval_loss=1", "val/loss=1", "loss", "loss=", "loss=nano", "loss=tensor(1)", "lossless=1", "x-loss=1"]
        {
            assert!(read(&loss, line).is_empty(), "{line}");
        }
        assert_eq!(read(&Patterns::parse("val/loss").unwrap(), "val/loss=2"), [("val/loss", "2")]);
    }

    #[test]
    fn an_expression_names_its_metric() {
        type Case<'a> = (&'a str, &'a str, &'a [(&'a str, &'a str)]);
        let expressions: [Case<'_>; 9] = [
            (r"loss=([0-9.e+-]+)", "loss=1e-3", &[("loss", "1e-3")]),
            (r"loss[=: ]\s*([0-9.]+)", "loss: 3", &[("loss", "3")]),
            (r"Train loss\s*:\s*([0-9.]+)", "Train loss : 3.5", &[("loss", "3.5")]),
            (r"\bacc=([0-9.]+)%", "acc=93.1%", &[("acc", "93.1")]),
            (r#""val/acc": (\d+\.\d+)"#, r#"{"val/acc": 0.5}"#, &[("val/acc", "0.5")]),
            (r"(?:train|eval) loss=([\d.]+)", "eval loss=2", &[("loss", "2")]),
            (r"\[(?:\d+)\] loss=([\d.]+)", "[1] loss=2", &[("loss", "2")]),
            (r"epoch (?<epoch>\d+): loss (?P<loss>[\d.]+)", "epoch 3: loss 0.5", &[("epoch", "3"), ("loss", "0.5")]),
            (r"loss=(\S+)", "loss=high", &[]),
        ];
        for (expression, line, found) in expressions {
            let patterns = Patterns::parse(expression).unwrap_or_else(|why| panic!("{why}"));
            assert_eq!(read(&patterns, line), found, "{expression}");
        }
    }

    #[test]
    fn what_names_no_metric_is_refused_with_what_to_write() {
        for (text, told) in [
            ("", "must have 1 to 32 patterns"),
            ("loss=[0-9]+", "a group for the number is missing"),
            ("([0-9]+)", "name the group"),
            ("(a)=(b)", "has several groups"),
            ("loss=([0-9]+", "no regular expression: unclosed group"),
            ("loss=((?:[0-9]{1000}){1000})", "too large"),
        ] {
            let why = Patterns::parse(text).unwrap_err();
            // an expression that is too large may be told so first
            assert!(why.contains(told) || why.contains("too large"), "{text}: {why}");
        }
        assert!(Patterns::parse(&"x".repeat(1001)).unwrap_err().contains("longer than"));
        assert!(Patterns::parse(&"loss\n".repeat(33)).is_err());
    }

    #[test]
    fn names_that_are_asked_for_twice_are_read_once() {
        let patterns = Patterns::parse("loss=<([0-9.]+)>").unwrap();
        assert!(patterns.names().eq(["loss"]));
        let both = patterns.and(Patterns::of_names(["loss", "accuracy", "no name"]));
        assert!(both.names().eq(["loss", "accuracy"]));
        assert_eq!(read(&both, "loss=<1> accuracy=2"), [("loss", "1"), ("accuracy", "2")]);
    }

    #[test]
    fn colours_hide_no_name() {
        let loss = Patterns::parse("loss").unwrap();
        let line = plain("\x1b[32mloss\x1b[0m=\x1b[1m0.5\x1b[0m");
        assert_eq!(read(&loss, &line), [("loss", "0.5")]);
    }

    proptest::proptest! {
        /// No text, as a pattern or as a line, does harm, and what is found is a number.
        #[test]
        fn any_text_is_read(pattern in ".{0,40}", line in ".{0,80}") {
            if let Ok(patterns) = Patterns::parse(&pattern) {
                for (name, value) in patterns.read(&line) {
                    assert!(!name.is_empty() && value.parse::<f64>().is_ok());
                }
            }
        }
    }
}
