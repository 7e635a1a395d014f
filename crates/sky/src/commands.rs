//! The grammar of the command line: every command of SkyPilot 0.14.1 with its options and aliases, hidden ones too, and our own.
//!
//! The table is `data/commands.txt`: a command a line, and below it its parameters: name, options (`--on,-o/--off`) or `argument`, type
//! (`a|b` is a choice), then `any-case` (of a choice), `list` (with commas), `bare=VALUE` (what it is without a value), `flag`, `multiple`, `many`,
//! `required`, `hidden`, `unset` (a flag without a default), `=DEFAULT`, and `ours` for what SkyPilot does not have.

mod parse;

use std::fmt::Write as _;

pub use parse::{Call, Parsed, UsageError, parse};

const TABLE: &str = include_str!("../data/commands.txt");
/// What each command does, and below an empty line what each parameter means: `NAME: TEXT`.
const HELP: &str = include_str!("../data/help.txt");

/// The line of help for a command, by its path, or for a parameter, by its name; empty where there is none.
pub fn meaning(of: &str) -> &'static str {
    let mut lines = HELP.lines().filter_map(|line| line.split_once(": "));
    lines.find(|(name, _)| *name == of).map_or("", |(_, text)| text)
}

/// Columns of help.
const WIDTH: usize = 80;
/// Where descriptions begin, of options and of commands.
const OPTION_COLUMN: usize = 34;
const COMMAND_COLUMN: usize = 16;
/// Longest list of choices beside the name of an option.
const CHOICE_MAX: usize = 40;

/// A name and what it means: beside it from a column on, or below it where the name is too long.
fn described(out: &mut String, name: &str, text: &str, column: usize) {
    let _ = write!(out, "  {name}");
    let mut at = name.chars().count() + 2;
    if text.is_empty() {
        out.push('\n');
        return;
    }
    if at + 2 > column {
        out.push('\n');
        at = 0;
    }
    let _ = write!(out, "{:1$}", "", column.saturating_sub(at));
    at = column;
    for (index, word) in text.split(' ').enumerate() {
        let length = word.chars().count() + 1;
        if index > 0 && at + length > WIDTH {
            let _ = write!(out, "\n{:column$}", "");
            at = column;
        } else if index > 0 {
            out.push(' ');
        }
        out.push_str(word);
        at += length;
    }
    out.push('\n');
}

/// A command, or a group of commands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Command {
    /// All its words: `sky jobs launch`.
    pub path: String,
    /// Whether help leaves it out.
    pub hidden: bool,
    /// Whether commands are below it.
    pub group: bool,
    /// Whether it says that it will go.
    pub deprecated: bool,
    /// Whether SkyPilot has no such command.
    pub ours: bool,
    /// Options and arguments, in order.
    pub params: Vec<Param>,
}

/// An option or an argument.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Param {
    /// Its name among the values.
    pub name: String,
    /// `--on`, `-o`; none for an argument.
    pub opts: Vec<String>,
    /// `--off`.
    pub off: Vec<String>,
    /// What it takes.
    pub kind: Kind,
    /// Whether it takes nothing, and is true where it stands.
    pub flag: bool,
    /// Whether it may stand more than once, or an argument takes all that is left.
    pub many: bool,
    /// Whether a choice may be written in any case.
    pub any_case: bool,
    /// Whether a value is a list with commas.
    pub list: bool,
    /// What it is where it stands without a value, if it may.
    pub bare: Option<String>,
    /// Whether it must be there.
    pub required: bool,
    /// Whether help leaves it out.
    pub hidden: bool,
    /// Whether SkyPilot has no such parameter.
    pub ours: bool,
    /// What it is where it is not given.
    pub default: Option<String>,
}

/// What a parameter takes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// Anything, by the name of its reader (`text`, `directory`).
    Text(String),
    /// A truth.
    #[default]
    Boolean,
    /// A whole number, by the name of its reader (`integer`, `int-or-none`, `integer-range`).
    Integer(String),
    /// A number.
    Float,
    /// One of these.
    Choice(Vec<String>),
}

/// All commands, in the order in which help lists them.
pub fn commands() -> Vec<Command> {
    let mut list: Vec<Command> = Vec::new();
    for line in TABLE.lines().filter(|line| !line.trim().is_empty()) {
        match (line.strip_prefix("  "), list.last_mut()) {
            (Some(line), Some(command)) => command.params.extend(param(line)),
            _ => list.push(command(line)),
        }
    }
    list
}

fn command(line: &str) -> Command {
    let (path, words) = line.trim_end_matches(')').split_once(" (").unwrap_or((line, ""));
    let is = |word: &str| words.split(' ').any(|one| one == word);
    Command {
        path: path.to_owned(),
        hidden: is("hidden"),
        group: is("group"),
        deprecated: is("deprecated"),
        ours: is("ours"),
        params: Vec::new(),
    }
}

fn param(line: &str) -> Option<Param> {
    let mut words = line.split(' ');
    let (name, options, kind) = (words.next()?, words.next()?, words.next()?);
    let words: Vec<&str> = words.collect();
    let is = |word: &str| words.contains(&word);
    let list = |text: &str| text.split(',').filter(|word| !word.is_empty()).map(str::to_owned).collect::<Vec<_>>();
    let (opts, off) = match options {
        "argument" => (Vec::new(), Vec::new()),
        options => {
            let (on, off) = options.split_once('/').unwrap_or((options, ""));
            (list(on), list(off))
        }
    };
    let kind = match kind {
        "boolean" => Kind::Boolean,
        "float" => Kind::Float,
        "integer" | "int-or-none" | "integer-range" => Kind::Integer(kind.to_owned()),
        choice if choice.contains('|') => Kind::Choice(choice.split('|').map(str::to_owned).collect()),
        text => Kind::Text(text.to_owned()),
    };
    let flag = is("flag");
    let given = words.iter().find_map(|word| word.strip_prefix('=')).map(str::to_owned);
    Some(Param {
        name: name.to_owned(),
        opts,
        off,
        kind,
        flag,
        many: is("many") || is("multiple"),
        any_case: is("any-case"),
        list: is("list"),
        bare: words.iter().find_map(|word| word.strip_prefix("bare=")).map(str::to_owned),
        required: is("required"),
        hidden: is("hidden"),
        ours: is("ours"),
        default: given.or_else(|| (flag && !is("unset")).then(|| "false".to_owned())),
    })
}

impl Param {
    /// Whether it is an argument and no option.
    pub fn is_argument(&self) -> bool {
        self.opts.is_empty() && self.off.is_empty()
    }

    /// As usage has an argument: `CLUSTER`, `[CLUSTERS]...`.
    fn metavar(&self) -> String {
        let name = self.name.to_uppercase();
        let name = if self.required { name } else { format!("[{name}]") };
        if self.many { format!("{name}...") } else { name }
    }

    /// As errors name it: `'--cluster' / '-c'`.
    fn told(&self) -> String {
        if self.is_argument() {
            return format!("'{}'", self.metavar());
        }
        let quoted: Vec<String> = self.opts.iter().map(|name| format!("'{name}'")).collect();
        quoted.join(" / ")
    }

    /// Whether its choices do not fit beside its name: they stand in its description.
    fn is_long_choice(&self) -> bool {
        matches!(&self.kind, Kind::Choice(list) if list.join("|").len() > CHOICE_MAX)
    }

    fn takes(&self) -> String {
        match &self.kind {
            _ if self.flag => String::new(),
            Kind::Boolean => " BOOLEAN".into(),
            Kind::Integer(_) => " INTEGER".into(),
            Kind::Float => " FLOAT".into(),
            Kind::Choice(_) if self.is_long_choice() => " CHOICE".into(),
            Kind::Choice(list) => format!(" [{}]", list.join("|")),
            Kind::Text(name) if name == "directory" => " DIRECTORY".into(),
            Kind::Text(_) => " TEXT".into(),
        }
    }
}

impl Command {
    /// `Usage: sky launch [OPTIONS] [ENTRYPOINT]...`.
    pub fn usage(&self) -> String {
        let mut usage = format!("Usage: {} [OPTIONS]", self.path);
        for param in self.params.iter().filter(|param| param.is_argument()) {
            let _ = write!(usage, " {}", param.metavar());
        }
        if self.group {
            usage.push_str(" COMMAND [ARGS]...");
        }
        usage
    }

    /// Help: usage, options, commands.
    pub fn help(&self, all: &[Command]) -> String {
        let mut out = format!("{}\n", self.usage());
        let about = meaning(&self.path);
        if !about.is_empty() {
            let _ = write!(out, "\n{about}.\n");
        }
        let arguments: Vec<&Param> = self.params.iter().filter(|param| !param.hidden && param.is_argument()).collect();
        if !arguments.is_empty() {
            out.push_str("\nArguments:\n");
            arguments
                .iter()
                .for_each(|param| described(&mut out, &param.metavar(), meaning(&param.name), OPTION_COLUMN));
        }
        out.push_str("\nOptions:\n");
        for param in self.params.iter().filter(|param| !param.hidden && !param.is_argument()) {
            let on = param.opts.join(", ");
            let off = if param.off.is_empty() { String::new() } else { format!(" / {}", param.off.join(", ")) };
            let default = param.default.as_ref().filter(|value| *value != "false");
            let default = default.map(|value| format!(" [default: {value}]")).unwrap_or_default();
            let name = format!("{on}{off}{}", param.takes());
            let choices = match &param.kind {
                Kind::Choice(list) if param.is_long_choice() => format!(": {}", list.join(", ")),
                _ => String::new(),
            };
            described(&mut out, &name, format!("{}{choices}{default}", meaning(&param.name)).trim(), OPTION_COLUMN);
        }
        described(&mut out, "-h, --help", "Print this help", OPTION_COLUMN);
        let below = self.below(all);
        if !below.is_empty() {
            out.push_str("\nCommands:\n");
            for command in below.iter().filter(|command| !command.hidden) {
                described(&mut out, command.word(), meaning(&command.path), COMMAND_COLUMN);
            }
        }
        out
    }

    /// Its last word.
    pub fn word(&self) -> &str {
        self.path.rsplit(' ').next().unwrap_or_default()
    }

    /// The commands of a group.
    fn below<'a>(&self, all: &'a [Command]) -> Vec<&'a Command> {
        let is_below = |other: &&Command| other.path.rsplit_once(' ').is_some_and(|(group, _)| group == self.path);
        all.iter().filter(is_below).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_read() {
        let all = commands();
        let find = |path: &str| all.iter().find(|command| command.path == path).unwrap();
        let param = |path: &str, name: &str| find(path).params.iter().find(|param| param.name == name).unwrap().clone();
        assert!(find("sky jobs").group && find("sky show-gpus").hidden && find("sky explain").ours);
        let run = param("sky launch", "detach_run");
        assert_eq!(
            (run.opts, run.off, run.default.as_deref()),
            (vec!["--detach-run".into(), "-d".into()], vec!["-no-d".into()], Some("false"))
        );
        assert_eq!(param("sky launch", "use_spot").default, None);
        assert_eq!(param("sky api start", "host").default.as_deref(), Some("127.0.0.1"));
        assert_eq!(find("sky launch").usage(), "Usage: sky launch [OPTIONS] [ENTRYPOINT]...");
        assert_eq!(find("sky cancel").usage(), "Usage: sky cancel [OPTIONS] CLUSTER [JOBS]...");
        assert_eq!(find("sky jobs").usage(), "Usage: sky jobs [OPTIONS] COMMAND [ARGS]...");
        assert!(
            find("sky").help(&all).contains("\n  launch ") && !find("sky").help(&all).contains("status-kubernetes")
        );
        // every command and parameter has a line of help, and no line is longer than a terminal
        for command in all.iter().filter(|command| !command.hidden) {
            assert!(!meaning(&command.path).is_empty(), "{} has no line in data/help.txt", command.path);
            for param in command.params.iter().filter(|param| !param.hidden) {
                assert!(!meaning(&param.name).is_empty(), "{} of {} has none", param.name, command.path);
            }
            let help = command.help(&all);
            let long = help.lines().skip(1).find(|line| line.chars().count() > 110);
            assert_eq!(long, None, "{}", command.path);
        }
        // every group of a command is there, and no name stands twice
        for command in &all {
            if let Some((group, _)) = command.path.rsplit_once(' ') {
                assert!(find(group).group, "{}", command.path);
            }
            assert_eq!(all.iter().filter(|other| other.path == command.path).count(), 1, "{}", command.path);
        }
    }
}
