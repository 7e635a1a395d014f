//! Words of a command line → the command and its values, or what is wrong with them, in click's words.

use std::collections::BTreeMap;

use super::{Command, Kind, Param};
use crate::suggest;
use crate::value::{float, parse_float, parse_int, quote};

/// A command with its values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// All its words: `sky jobs launch`.
    pub path: String,
    /// Options, in the order in which they stand first.
    given: Vec<String>,
    values: BTreeMap<String, Vec<String>>,
}

/// What a command line is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Parsed {
    /// A command to carry out.
    Call(Call),
    /// Somebody asks how it is used: the text.
    Help(String),
    /// Somebody asks for the version.
    Version,
    /// Somebody asks for the commit.
    Commit,
}

/// What is wrong with a command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsageError {
    /// The command's usage; nothing where click does not tell it: an option lacks its value, or has one too many.
    pub usage: String,
    /// The command's words.
    pub path: String,
    /// What is wrong.
    pub message: String,
}

impl Call {
    /// The value of a parameter: the last one given, else its default.
    pub fn value(&self, name: &str) -> Option<&str> {
        self.values.get(name)?.last().map(String::as_str)
    }

    /// The options that are given, in the order in which they stand first.
    pub fn given(&self) -> impl Iterator<Item = &str> {
        self.given.iter().map(String::as_str)
    }

    /// All values of a parameter.
    pub fn values(&self, name: &str) -> &[String] {
        self.values.get(name).map_or(&[], Vec::as_slice)
    }

    /// With one more value of a parameter, before those that it has.
    #[must_use]
    pub fn preceded(mut self, name: &str, value: &str) -> Self {
        self.values.entry(name.to_owned()).or_default().insert(0, value.to_owned());
        self
    }

    /// Whether a flag is set.
    pub fn is_set(&self, name: &str) -> bool {
        self.value(name) == Some("true")
    }
}

impl std::error::Error for UsageError {}

impl std::fmt::Display for UsageError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if !self.usage.is_empty() {
            write!(f, "{}\nTry '{} -h' for help.\n\n", self.usage, self.path)?;
        }
        write!(f, "Error: {}", self.message)
    }
}

impl UsageError {
    /// An error of a command that its grammar alone cannot tell.
    pub fn of(command: &Command, message: impl Into<String>) -> Self {
        Self { usage: command.usage(), path: command.path.clone(), message: message.into() }
    }
}

/// Reads the words behind `sky`.
///
/// # Errors
/// For an unknown command or option, and for values that do not fit.
pub fn parse(all: &[Command], words: &[String]) -> Result<Parsed, UsageError> {
    let Some(mut command) = all.iter().find(|command| command.path == "sky") else {
        return Ok(Parsed::Help(String::new()));
    };
    let mut words = words;
    loop {
        let mut reader = Reader { command, rest: words, given: Vec::new(), early: None, arguments: Vec::new() };
        let stopped = reader.read()?;
        let Reader { rest, given, early, arguments, .. } = reader;
        match early {
            Some(Early::Help) => return Ok(Parsed::Help(command.help(all))),
            Some(Early::Version) => return Ok(Parsed::Version),
            Some(Early::Commit) => return Ok(Parsed::Commit),
            None => {}
        }
        match stopped {
            Stop::Word(word) => {
                let path = format!("{} {word}", command.path);
                let Some(next) = all.iter().find(|next| next.path == path) else {
                    // to click it is an option that comes late, and nothing is left then
                    if word.starts_with(|first: char| !first.is_alphanumeric()) {
                        return Ok(Parsed::Help(command.help(all)));
                    }
                    let names = command.below(all).into_iter().filter(|below| !below.hidden).map(Command::word);
                    let meant = suggest::nearest(&word, names.collect::<Vec<_>>());
                    let hint = meant.map(|meant| format!(" Did you mean {meant}?")).unwrap_or_default();
                    return Err(UsageError::of(command, format!("No such command {}.{hint}", quote(&word))));
                };
                command = next;
                words = rest;
            }
            Stop::End if command.group => return Ok(Parsed::Help(command.help(all))),
            Stop::End => return finish(command, &given, arguments).map(Parsed::Call),
        }
    }
}

/// Why reading stopped.
enum Stop {
    End,
    /// A word of a group: its next command.
    Word(String),
}

/// What is answered before any value is looked at, once all options are known.
#[derive(Clone, Copy)]
enum Early {
    Help,
    Version,
    Commit,
}

struct Reader<'a> {
    command: &'a Command,
    rest: &'a [String],
    /// Options and their values, as they stand.
    given: Vec<(&'a Param, String)>,
    /// The first of those that stand there.
    early: Option<Early>,
    arguments: Vec<String>,
}

impl<'a> Reader<'a> {
    fn read(&mut self) -> Result<Stop, UsageError> {
        while let Some((word, rest)) = self.rest.split_first() {
            self.rest = rest;
            match word.as_str() {
                "--" if self.command.group && !rest.is_empty() => {
                    self.rest = &rest[1..];
                    return Ok(Stop::Word(rest[0].clone()));
                }
                word if self.command.group && !is_like_an_option(word) => return Ok(Stop::Word(word.to_owned())),
                word => self.word_of_command(word)?,
            }
        }
        Ok(Stop::End)
    }

    fn word_of_command(&mut self, word: &str) -> Result<(), UsageError> {
        match word {
            "--" => {
                self.arguments.extend(self.rest.iter().cloned());
                self.rest = &[];
            }
            option if is_like_an_option(option) => self.option(option)?,
            word => self.arguments.push(word.to_owned()),
        }
        Ok(())
    }

    fn error<T>(&self, message: impl Into<String>) -> Result<T, UsageError> {
        Err(UsageError::of(self.command, message))
    }

    /// An error about what an option is given.
    fn badly_given<T>(&self, message: String) -> Result<T, UsageError> {
        Err(UsageError { usage: String::new(), path: self.command.path.clone(), message })
    }

    fn option(&mut self, word: &str) -> Result<(), UsageError> {
        let (name, attached) = match word.split_once('=') {
            Some((name, value)) if word.starts_with("--") => (name, Some(value)),
            _ => (word, None),
        };
        if let Some((param, on)) = self.find(name) {
            return self.give(param, on, name, attached.map(str::to_owned));
        }
        if name == "--help" {
            return match attached {
                Some(_) => self.badly_given("Option '--help' does not take a value.".to_owned()),
                None => {
                    self.early.get_or_insert(Early::Help);
                    Ok(())
                }
            };
        }
        if word.starts_with("--") {
            return self.unknown(name);
        }
        // several short ones in one word, the last of them perhaps with its value: `-yc dev`, `-cdev`
        let mut rest = word.get(1..).unwrap_or_default();
        while let Some(letter) = rest.chars().next() {
            rest = rest.get(letter.len_utf8()..).unwrap_or_default();
            let name = format!("-{letter}");
            match self.find(&name) {
                None if letter == 'h' => {
                    self.early.get_or_insert(Early::Help);
                }
                None => return self.error(format!("No such option: {name}")),
                Some((param, on)) if param.flag => self.give(param, on, &name, None)?,
                Some((param, on)) => {
                    let value = (!rest.is_empty()).then(|| rest.to_owned());
                    return self.give(param, on, &name, value);
                }
            }
        }
        Ok(())
    }

    fn find(&self, name: &str) -> Option<(&'a Param, bool)> {
        let has = |list: &[String]| list.iter().any(|option| option == name);
        self.command.params.iter().find_map(|param| {
            if has(&param.opts) { Some((param, true)) } else { has(&param.off).then_some((param, false)) }
        })
    }

    fn unknown(&self, name: &str) -> Result<(), UsageError> {
        let all = self.command.params.iter().flat_map(|param| param.opts.iter().chain(&param.off));
        // of short options none is meant
        let known: Vec<&str> = all.map(String::as_str).chain(["--help"]).filter(|option| option.len() > 2).collect();
        let near = suggest::near(name, known.iter().copied(), 3);
        let hint = match near.as_slice() {
            [] => String::new(),
            [one] => format!(" Did you mean {one}?"),
            many => {
                let mut many = many.to_vec();
                many.sort_unstable();
                format!(" (Possible options: {})", many.join(", "))
            }
        };
        self.error(format!("No such option: {name}{hint}"))
    }

    /// Whether what follows may be the value of an option that can do without.
    fn has_value(&self) -> bool {
        self.rest.first().is_some_and(|next| !is_like_an_option(next))
    }

    fn give(&mut self, param: &'a Param, on: bool, name: &str, attached: Option<String>) -> Result<(), UsageError> {
        // what looks like an option is never the value of one that can do without, attached to it or not: it is read next
        let (attached, next) = match attached {
            Some(word) if param.bare.is_some() && is_like_an_option(&word) => (None, Some(word)),
            attached => (attached, None),
        };
        let value = if param.flag {
            if attached.is_some() {
                return self.badly_given(format!("Option '{name}' does not take a value."));
            }
            on.to_string()
        } else if let Some(value) = attached {
            value
        } else if let Some(value) = param.bare.as_ref().filter(|_| next.is_some() || !self.has_value()) {
            value.clone()
        } else if let Some((value, rest)) = self.rest.split_first() {
            self.rest = rest;
            value.clone()
        } else {
            return self.badly_given(format!("Option '{name}' requires an argument."));
        };
        if self.command.path == "sky" {
            match param.name.as_str() {
                "version" => drop(self.early.get_or_insert(Early::Version)),
                "commit" => drop(self.early.get_or_insert(Early::Commit)),
                _ => {}
            }
        }
        self.given.push((param, value));
        next.map_or(Ok(()), |word| self.word_of_command(&word))
    }
}

fn is_like_an_option(word: &str) -> bool {
    word.len() > 1 && word.starts_with('-')
}

/// Gives arguments their names, and looks at all values: of options in the order in which they stand first, then of arguments. Of an option
/// that stands more than once the last value counts, unless it takes several.
fn finish(command: &Command, given: &[(&Param, String)], arguments: Vec<String>) -> Result<Call, UsageError> {
    let error = |message: String| Err(UsageError::of(command, message));
    let mut values: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut names: Vec<String> = Vec::new();
    for (at, (param, _)) in given.iter().enumerate() {
        if given[..at].iter().any(|(before, _)| before.name == param.name) {
            continue;
        }
        let of_param = given.iter().filter(|(other, _)| other.name == param.name);
        let mut all: Vec<String> = of_param.map(|(_, value)| value.clone()).collect();
        if !param.many {
            // the last one counts
            all.drain(..all.len().saturating_sub(1));
        }
        if param.list {
            let words = |value: &String| value.split(',').map(|word| word.trim().to_owned()).collect::<Vec<_>>();
            all = all.iter().flat_map(words).filter(|word| !word.is_empty()).collect();
        }
        for value in all.iter_mut().filter(|value| param.bare.as_ref() != Some(value)) {
            if let Err(why) = fit(param, value) {
                return error(format!("Invalid value for {}: {why}", param.told()));
            }
        }
        names.push(param.name.clone());
        values.insert(param.name.clone(), all);
    }
    let mut left = arguments.into_iter();
    for param in command.params.iter().filter(|param| param.is_argument()) {
        let mut taken: Vec<String> =
            if param.many { left.by_ref().collect() } else { left.next().into_iter().collect() };
        if taken.is_empty() && param.required {
            return error(format!("Missing argument {}.", param.told()));
        }
        for value in &mut taken {
            if let Err(why) = fit(param, value) {
                return error(format!("Invalid value for {}: {why}", param.told()));
            }
        }
        if !taken.is_empty() {
            values.insert(param.name.clone(), taken);
        }
    }
    for param in &command.params {
        if values.contains_key(&param.name) {
            continue;
        }
        if let Some(default) = &param.default {
            values.insert(param.name.clone(), vec![default.clone()]);
        } else if param.required && !param.is_argument() {
            return error(format!("Missing option {}.", param.told()));
        }
    }
    let left: Vec<String> = left.collect();
    if !left.is_empty() {
        let s = if left.len() == 1 { "" } else { "s" };
        return error(format!("Got unexpected extra argument{s} ({})", left.join(" ")));
    }
    Ok(Call { path: command.path.clone(), given: names, values })
}

/// Why a value does not fit, in click's words.
#[derive(Debug, thiserror::Error)]
enum Unfit {
    #[error("{0} is not in the range x>=1.")]
    Range(i128),
    #[error("{} is not a valid integer or \"none\" or \"all\"", quote(.0))]
    IntegerOrNone(String),
    #[error("{} is not a valid {kind}.", quote(.value))]
    Number { value: String, kind: String },
    #[error("{} is not one of {}.", quote(.value), .choices.iter().map(|one| format!("'{one}'")).collect::<Vec<_>>().join(", "))]
    Choice { value: String, choices: Vec<String> },
}

/// Whether a value fits; a number is written plainly then, and a choice gets the case that it has in the table.
fn fit(param: &Param, value: &mut String) -> Result<(), Unfit> {
    match &param.kind {
        _ if param.flag => Ok(()),
        Kind::Integer(name) if name == "int-or-none" && ["none", "all"].contains(&value.to_lowercase().as_str()) => {
            Ok(())
        }
        Kind::Integer(name) => match parse_int(value) {
            Some(number) if name == "integer-range" && number < 1 => Err(Unfit::Range(number)),
            Some(number) => {
                *value = number.to_string();
                Ok(())
            }
            None if name == "int-or-none" => Err(Unfit::IntegerOrNone(value.clone())),
            None => Err(Unfit::Number { value: value.clone(), kind: name.replace('-', " ") }),
        },
        Kind::Float => match parse_float(value) {
            Some(number) => {
                *value = float(number);
                Ok(())
            }
            None => Err(Unfit::Number { value: value.clone(), kind: "float".to_owned() }),
        },
        Kind::Choice(list) => {
            let is_it = |one: &&String| *one == value || (param.any_case && one.eq_ignore_ascii_case(value));
            match list.iter().find(is_it) {
                Some(known) => {
                    value.clone_from(known);
                    Ok(())
                }
                None => Err(Unfit::Choice { value: value.clone(), choices: list.clone() }),
            }
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::commands;

    fn read(line: &str) -> Result<Parsed, String> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        parse(&commands(), &words).map_err(|error| error.message)
    }

    fn call(line: &str) -> Call {
        match read(line) {
            Ok(Parsed::Call(call)) => call,
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn options_stand_anywhere() {
        let one = call("launch -yc dev --gpus=V100:4 echo hi --env A=1 --env B=2 --no-use-spot");
        assert_eq!(one.path, "sky launch");
        assert!(one.is_set("yes") && !one.is_set("dryrun") && !one.is_set("use_spot"));
        assert_eq!((one.value("cluster"), one.value("gpus")), (Some("dev"), Some("V100:4")));
        assert_eq!(
            (one.values("entrypoint"), one.values("env")),
            (&["echo".into(), "hi".into()][..], &["A=1".into(), "B=2".into()][..])
        );
        assert_eq!((one.value("use_spot"), one.value("name")), (Some("false"), None));
        assert_eq!(call("launch -cdev x").value("cluster"), Some("dev"));
        assert_eq!(call("launch -no-d x").value("detach_run"), Some("false"));
        assert_eq!(call("launch --disk-tier LOW x").value("disk_tier"), Some("low"));
        assert_eq!(call("exec dev -- ls -l").values("entrypoint"), ["ls", "-l"]);
        assert_eq!(call("jobs queue").value("limit"), Some("50"));
        // of several values of an option the last one counts, and is looked at
        assert_eq!(call("queue -o csv --output JSON").value("output_format"), Some("json"));
        assert_eq!(call("launch --num-nodes +1_0 x").value("num_nodes"), Some("10"));
        assert_eq!(call("jobs queue -s running, -s FAILED,").values("statuses"), ["RUNNING", "FAILED"]);
        assert_eq!(call("logs dev --hook --status").value("hook_event"), Some(""));
        assert_eq!(call("logs dev --hook stop").value("hook_event"), Some("stop"));
        // an option that is attached to one that can do without a value is an option
        let attached = call("logs dev --hook=--status --worker 1");
        assert_eq!((attached.value("hook_event"), attached.is_set("status")), (Some(""), true));
        assert_eq!(call("logs dev --hook=-- --status").values("job_ids"), ["--status"]);
        assert_eq!(call("logs dev --hook=- --worker 1").value("hook_event"), Some("-"));
        assert_eq!(read("logs dev --worker 1.5 --hook=-5"), Err("No such option: -5".to_owned()));
        assert_eq!(call("jobs pool down p").path, "sky jobs pool down");
        assert_eq!(call("volume ls").path, "sky volume ls");
    }

    #[test]
    fn what_is_wrong_is_said_in_clicks_words() {
        for (line, message) in [
            ("fly", "No such command 'fly'."),
            ("jobs fly", "No such command 'fly'."),
            ("launch --fast-please x", "No such option: --fast-please Did you mean --fast?"),
            (
                "launch --disk-tier fast x",
                "Invalid value for '--disk-tier': 'fast' is not one of 'low', 'medium', 'high', 'ultra', 'best', 'none'.",
            ),
            ("launch --num-nodes two x", "Invalid value for '--num-nodes': 'two' is not a valid integer."),
            ("launch -i x y", "Invalid value for '--idle-minutes-to-autostop' / '-i': 'x' is not a valid integer."),
            ("launch --dryrun=yes x", "Option '--dryrun' does not take a value."),
            ("launch -c", "Option '-c' requires an argument."),
            ("launch --c x", "No such option: --c (Possible options: --clone, --cloud, --cpus)"),
            ("launch --helpp x", "No such option: --helpp Did you mean --help?"),
            ("launch -yZ x", "No such option: -Z"),
            ("cancel", "Missing argument 'CLUSTER'."),
            ("cancel dev one", "Invalid value for '[JOBS]...': 'one' is not a valid integer."),
            ("gpus list a b", "Got unexpected extra argument (b)"),
            ("gpus list a b c", "Got unexpected extra arguments (b c)"),
            // the first option that stands there is told first, arguments come after them, and what is too much comes last
            ("logs --tail=x dev it's", "Invalid value for '--tail': 'x' is not a valid integer."),
            ("jobs launch --num-nodes two", "Invalid value for '--num-nodes': 'two' is not a valid integer."),
            ("jobs logs it's --tail 3", "Invalid value for '[JOB_ID]': \"it's\" is not a valid integer."),
            ("queue -o csv --all", "No such option: --all Did you mean --all-users?"),
            ("api info -o csv extra", "Invalid value for '--output' / '-o': 'csv' is not one of 'table', 'json'."),
            (
                "api status -l x",
                "Invalid value for '--limit' / '-l': 'x' is not a valid integer or \"none\" or \"all\"",
            ),
            ("local up --num-nodes 0", "Invalid value for '--num-nodes': 0 is not in the range x>=1."),
            ("local up --num-nodes x", "Invalid value for '--num-nodes': 'x' is not a valid integer range."),
            (
                "jobs queue --status RUNNING,odd",
                "Invalid value for '-s' / '--status': 'odd' is not one of 'PENDING', 'SUBMITTED', 'STARTING', 'RUNNING', 'WINDING_DOWN', 'RECOVERING', 'CANCELLING', 'SUCCEEDED', 'CANCELLED', 'FAILED', 'FAILED_SETUP', 'FAILED_PRECHECKS', 'FAILED_NO_RESOURCE', 'FAILED_CONTROLLER'.",
            ),
            // words of some choices have one case
            (
                "launch --wait-for JOBS x",
                "Invalid value for '--wait-for': 'JOBS' is not one of 'jobs_and_ssh', 'jobs', 'none'.",
            ),
            // what is no option is told before help is given
            ("launch --help --nope", "No such option: --nope (Possible options: --name, --no-setup, --zone)"),
            ("api start -host x", "No such option: -o"),
        ] {
            assert_eq!(read(line), Err(message.to_owned()), "{line}");
        }
    }

    #[test]
    fn an_option_without_its_value_is_told_without_usage() {
        let told = |line: &str| {
            let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            parse(&commands(), &words).map_err(|error| error.to_string()).unwrap_err()
        };
        assert_eq!(told("launch -c"), "Error: Option '-c' requires an argument.");
        assert_eq!(told("launch --dryrun=yes x"), "Error: Option '--dryrun' does not take a value.");
        assert!(told("launch --nope").starts_with("Usage: sky launch [OPTIONS] [ENTRYPOINT]...\nTry "));
    }

    #[test]
    fn help_and_version_come_first() {
        assert!(matches!(read("-h"), Ok(Parsed::Help(_))) && matches!(read(""), Ok(Parsed::Help(_))));
        assert!(matches!(read("jobs"), Ok(Parsed::Help(_))) && matches!(read("launch --help"), Ok(Parsed::Help(_))));
        assert_eq!(read("--version"), Ok(Parsed::Version));
        assert_eq!(read("-v launch"), Ok(Parsed::Version));
        assert_eq!(read("--commit"), Ok(Parsed::Commit));
        assert_eq!(read("--commit -h"), Ok(Parsed::Commit));
        assert!(matches!(read("launch -yh --num-nodes two"), Ok(Parsed::Help(_))));
        // to click a command that begins with a sign is an option that comes late
        assert!(matches!(read("jobs -- -x"), Ok(Parsed::Help(_))) && matches!(read("-"), Ok(Parsed::Help(_))));
    }
}
